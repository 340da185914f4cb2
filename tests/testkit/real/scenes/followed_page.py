"""A page of docs/ that is followed: its files are written, its commands run as they stand there, in an empty folder.

A fenced block with a title is a file, ``sh`` is run, ``text`` after it is what it prints. Ports and hosts are the only
things that are replaced before a page is followed. Owns the shell that does so, and nothing that it starts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from idemproxy.demo.child_processes import ChildProcesses

_PREAMBLE = (
    "unset PYTHONPATH PYTHONHOME VIRTUAL_ENV",
    "set -euo pipefail",
    "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT",
)
_HELD, _RELEASED = "held", "released"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, the file that it is (or none), and what stands in it."""

    language: str
    title: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    fences = [token for token in MarkdownIt().parse(page.read_text()) if token.type == "fence"]
    found = []
    for fence in fences:
        title = re.search(r'title="([^"]+)"', fence.info)
        found.append(Block((fence.info.split() or [""])[0], title[1] if title else "", fence.content))
    return found


def changed(text: str, replacements: Mapping[str, str]) -> str:
    """Return the text with other ports and hosts, all at once."""
    if not replacements:
        return text
    pattern = "|".join(re.escape(old) for old in sorted(replacements, key=len, reverse=True))
    return re.sub(pattern, lambda match: replacements[match[0]], text)


class FollowedPage:
    """Begins to follow the page; ``end`` waits for its last command. The shell is one of ``children``.

    ``hold_before``: the first block with this text is begun only after ``go_on``, so that somebody may look in time.
    """

    def __init__(
        self,
        page: Path,
        folder: Path,
        children: ChildProcesses,
        replacements: Mapping[str, str],
        environment: Mapping[str, str],
        *,
        hold_before: str = "",
    ) -> None:
        self.folder = folder
        self._name = page.name
        self._promised: list[str] = []
        self._output = folder / "page.out"
        folder.mkdir(exist_ok=True)
        script = list(_PREAMBLE)
        for block in blocks_of(page):
            text = changed(block.text, replacements)
            if block.title:
                # The files stand on the page before the commands that use them, so they may all be there at once.
                (folder / block.title).write_text(text)
            elif block.language == "sh":
                if hold_before and hold_before in block.text:
                    script.append(f"touch {_HELD}; until test -e {_RELEASED}; do sleep 0.1; done")
                    hold_before = ""
                script.append(text)
            elif block.language == "text":
                self._promised += text.splitlines()
        assert not hold_before, f"{page.name} has no such block: {hold_before}"
        (folder / "page.sh").write_text("\n".join(script))
        command = ["bash", "-x", "page.sh"]
        self._shell = children.start(page.name, command, self._output, environment=environment, directory=folder)

    def wait_until_held(self, seconds_max: float) -> None:
        """Return when the page has come to the block before which it is held."""
        end = time.monotonic() + seconds_max
        while not (self.folder / _HELD).exists():
            self.assert_it_goes_well()
            assert time.monotonic() < end, self.report()
            time.sleep(0.1)

    def go_on(self) -> None:
        """Let the block begin."""
        (self.folder / _RELEASED).touch()

    def assert_it_goes_well(self) -> None:
        """Fail with all that was printed if the page has ended with an error."""
        assert not self._shell.exit_code, f"{self._name} ended with {self._shell.exit_code}:\n{self.report()}"

    def end(self, seconds_max: float) -> str:
        """Wait for the last command, return what was printed; what the page promises to print has to be there."""
        self._shell.wait(seconds_max)
        self.assert_it_goes_well()
        printed = self._output.read_text(errors="replace")
        assert [line for line in self._promised if line not in printed.splitlines()] == [], printed
        return printed

    def report(self) -> str:
        """The end of what was printed, and of each log file."""
        logs = "".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in self.folder.glob("*.log")
        )
        return f"{self._output.read_text(errors='replace')[-4000:]}\n{''.join(logs)}"


def follow(
    page: Path,
    folder: Path,
    children: ChildProcesses,
    replacements: Mapping[str, str],
    environment: Mapping[str, str],
    seconds_max: float,
) -> str:
    """Do what the page says in ``folder`` and return what was printed; what it promises to print has to be there."""
    return FollowedPage(page, folder, children, replacements, environment).end(seconds_max)
