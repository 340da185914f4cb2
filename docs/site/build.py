"""Builds the site: ``python docs/site/build.py [FOLDER]``, by default .cache/docs; its pages are in FOLDER/site.

The pages are copied to FOLDER/pages with what is generated from the code, with the files of the repository that they
link to, and with the version. Zensical makes the site of them, from the configuration that MkDocs and Material for
MkDocs read as well. A link to nowhere is an error."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from posixpath import dirname, relpath
from typing import Final

from idemproxy import __version__
from references import ROOT, with_references

DOCS: Final = ROOT / "docs"
CARRIED: Final = "repository"
"""Folder of the site for files that are not in docs/."""
_LINK: Final = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(?=[)#])")
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")
_LEFT_OUT: Final = shutil.ignore_patterns("site", "__pycache__", "[A-Z]*.md")


def write_pages(folder: Path) -> None:
    """Write all that the site is made of. Raises FileNotFoundError for a link to a file that is not there."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=_LEFT_OUT)
    for page in folder.rglob("*.md"):
        place = page.relative_to(folder).as_posix()
        page.write_text(_with_carried(with_references(page.read_text()), place, folder))


def _with_carried(text: str, place: str, folder: Path) -> str:
    return _LINK.sub(lambda match: _carried(match[1], place, folder), text)


def _carried(link: str, place: str, folder: Path) -> str:
    """Return the link as it is in the site. A file of the repository outside of docs/ is copied into it."""
    target = (DOCS / dirname(place) / link).resolve()
    if target.is_relative_to(DOCS):
        return link
    copy = folder / CARRIED / target.relative_to(ROOT)
    if target.is_dir():
        shutil.copytree(target, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        copy = copy / "README.md"
    else:
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, copy)
    return relpath(copy.relative_to(folder).as_posix(), dirname(place) or ".")


def build(folder: Path) -> int:
    """Make the site below the folder, and return the exit status."""
    write_pages(folder / "pages")
    configuration = (DOCS / "site/mkdocs.yml").read_text().replace("VERSION", __version__)
    (folder / "mkdocs.yml").write_text(configuration)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", "mkdocs.yml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    print(_COLOUR.sub("", done.stdout + done.stderr))
    return done.returncode


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / ".cache/docs"))
