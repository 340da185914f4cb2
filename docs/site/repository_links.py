"""For MkDocs: pages may link to files beside docs/, as readers of the repository do; the site then carries these files.

Markdown becomes a page, everything else is copied. What does not exist is left as it is, so that a strict build fails.
"""

import os
import re
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(?=[)#])")
CARRIED = "repository"
"""Folder of the site for files that are not in docs/."""


def root_of(config: MkDocsConfig) -> str:
    """Return the repository's folder."""
    return os.path.dirname(config.docs_dir)


def place_of(source: str) -> str:
    """Return where a page of the site lies in the repository."""
    return source.removeprefix(f"{CARRIED}/") if source.startswith(f"{CARRIED}/") else f"docs/{source}"


def target_of(link: str, source: str, config: MkDocsConfig) -> str | None:
    """Return the file in the repository that a link on a page means; None: there is none. For a folder it is its
    README, or a list of its files that is made here."""
    path = normpath(join(dirname(place_of(source)), link))
    place = os.path.join(root_of(config), path)
    if os.path.isdir(place):
        return f"{path}/README.md" if os.path.isfile(f"{place}/README.md") else f"{path}/index.md"
    return path if os.path.isfile(place) else None


def list_of(folder: str) -> str:
    """Return a page that lists the files of a folder."""
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    return f"# {os.path.basename(folder)}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)


def carried(source: str, text: str, config: MkDocsConfig) -> set[str]:
    """Return the files outside of docs/ that a page links to."""
    targets = {target_of(match[1], source, config) for match in LINK.finditer(text)}
    return {target for target in targets if target and not target.startswith("docs/")}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked to from docs/, and what is linked to from there."""
    waiting = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    while waiting:
        for target in carried(*waiting.pop(), config):
            uri = f"{CARRIED}/{target}"
            if files.get_file_from_path(uri) is None:
                place = os.path.join(root_of(config), target)
                if os.path.isfile(place):
                    file = File.generated(config, uri, abs_src_path=place)
                else:
                    file = File.generated(config, uri, content=list_of(dirname(place)))
                files.append(file)
                if file.is_documentation_page():
                    waiting.append((uri, file.content_string))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links point to where their files are in the site."""
    source = page.file.src_uri

    def mended(match: re.Match[str]) -> str:
        target = target_of(match[1], source, config)
        if target is None:
            return match[1]
        uri = target.removeprefix("docs/") if target.startswith("docs/") else f"{CARRIED}/{target}"
        return relpath(uri, dirname(source) or ".")

    return LINK.sub(mended, markdown)
