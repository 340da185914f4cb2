"""Builds the site: ``python docs/site/build.py [FOLDER]``, by default .cache/docs; its pages are in FOLDER/site.

The pages are copied to FOLDER/pages with what is generated from the code, with the files of the repository that they
link to, and with the version. Zensical makes the site of them, from the configuration that MkDocs and Material for
MkDocs read as well. A link to nowhere is an error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from idemproxy import __version__
from references import ROOT, with_references

DOCS: Final = ROOT / "docs"
CARRIED: Final = Path("repository")
"""Folder of the site for files that are not in docs/."""
_LINK: Final = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(?=[)#])")
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")
_LEFT_OUT: Final = shutil.ignore_patterns("site", "__pycache__", "[A-Z]*.md")


def write_pages(folder: Path) -> None:
    """Write all that the site is made of. Raises FileNotFoundError for a link to a file that is not there."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=_LEFT_OUT)
    waiting = sorted(folder.rglob("*.md"))
    while waiting:
        page = waiting.pop()
        text = with_references(page.read_text())
        page.write_text(_LINK.sub(partial(_in_site, page, folder, waiting), text))


def _in_site(page: Path, folder: Path, waiting: list[Path], link: re.Match[str]) -> str:
    """Return the link as it is in the site. A file of the repository outside of docs/ is copied, and a page waits to be
    written like all others."""
    place = page.relative_to(folder)
    home = ROOT / place.relative_to(CARRIED) if place.is_relative_to(CARRIED) else DOCS / place
    target = (home.parent / link[1]).resolve()
    if target.is_dir():
        target /= "README.md"
    copy = folder / (target.relative_to(DOCS) if target.is_relative_to(DOCS) else CARRIED / target.relative_to(ROOT))
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, copy)
        if copy.suffix == ".md":
            waiting.append(copy)
    return Path(os.path.relpath(copy, page.parent)).as_posix()


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
