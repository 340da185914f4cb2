"""The shape of the pages of documentation, as files: no line over 160 characters, no table cell over 40 words.

``python tests/runs/docs_shape.py`` wraps paragraphs that are longer, page by page, and says what it cannot mend;
without ``--check`` it writes. A table row is one line in Markdown, however long it is: a cell that is too long is for a
person to rewrite, so that it is a whole statement and what is more stands below its table. Needs nothing but Python.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
LINE_CHARACTERS_MAX: Final = 160
WIDTH: Final = 120
"""Of a paragraph that is wrapped anew."""
CELL_WORDS_MAX: Final = 40
FOLDERS: Final = (".", "docs", "benchmarks", "charts/idemproxy", "examples", "tests/model")
GENERATED: Final = (
    "docs/COMPATIBILITY.md",
    "docs/DIFFERENCES_SEEN.md",
    "charts/idemproxy/README.md",
)
"""Each is made by a program of its own, which keeps to this."""

_CODE: Final = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_LINK_TARGET: Final = re.compile(r"\]\([^)]*\)")
_ITEM: Final = re.compile(r"(\s*)([-*+]|\d+[.)])(\s+)")
_STARTS_SOMETHING: Final = re.compile(r"([-*+>|]|\d+[.)]|#{1,6})(\s|$)|!!!|```|~~~|<|=+$|-+$")
_CELL_BORDER: Final = re.compile(r"(?<!\\)\|")
_GLUE: Final = "\N{NO-BREAK SPACE}"


def pages() -> list[Path]:
    """Return all of them."""
    return sorted(page for folder in FOLDERS for page in (ROOT / folder).glob("*.md"))


def complaints(text: str) -> Iterator[str]:
    """Yield what is too long, with the number of its line."""
    for number, line, kind in _lines(text):
        if kind == "row":
            yield from (f"{number}: a cell of {words} words" for words in _words(line) if words > CELL_WORDS_MAX)
        elif len(line) > LINE_CHARACTERS_MAX:
            yield f"{number}: {len(line)} characters"


def shaped(text: str) -> str:
    """Return the page with nothing in it that is too long, as far as that can be done without a reader."""
    return _wrapped(text)


# ---------------------------------------------------------------------- lines
def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield number, line and kind: code, row, text or blank."""
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if fence:
            yield number, line, "code"
            if mark is not None and mark[1].startswith(fence):
                fence = ""
        elif mark is not None:
            fence = mark[1]
            yield number, line, "code"
        elif line.startswith("|"):
            yield number, line, "row"
        else:
            yield number, line, "text" if line.strip() else "blank"


def _wrapped(text: str) -> str:
    out: list[str] = []
    paragraph: list[str] = []

    def end_paragraph() -> None:
        if any(len(line) > LINE_CHARACTERS_MAX for line in paragraph):
            out.extend(_fill(paragraph))
        else:
            out.extend(paragraph)
        paragraph.clear()

    for _, line, kind in _lines(text):
        if kind != "text":
            end_paragraph()
            out.append(line)
            continue
        if paragraph and _ends_before(line):
            end_paragraph()
        if _stays(line):
            end_paragraph()
            out.append(line)
        else:
            paragraph.append(line)
    end_paragraph()
    return "\n".join(out)


def _ends_before(line: str) -> bool:
    return _ITEM.match(line) is not None or line.lstrip().startswith(("#", ">", "<", "!!!"))


def _stays(line: str) -> bool:
    """Headings, HTML, pictures, admonitions: one line each."""
    return line.startswith(("#", "<", "!!!", "![", ">")) or re.match(r"\[[^\]]+\]:\s", line) is not None


def _fill(lines: list[str]) -> list[str]:
    """Return a paragraph, which may be that of a list's item, in lines of the usual width."""
    item = _ITEM.match(lines[0])
    first = item[0] if item is not None else re.match(r"\s*", lines[0])[0]  # type: ignore[index]
    indent = " " * len(first)
    words = " ".join([lines[0][len(first) :].strip(), *(line.strip() for line in lines[1:])])
    glued = _LINK_TARGET.sub(_glue, _CODE.sub(_glue, words))
    filled = textwrap.wrap(
        glued,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in _without_false_starts(filled, indent)]


def _glue(found: re.Match[str]) -> str:
    return found[0].replace(" ", _GLUE)


def _without_false_starts(lines: list[str], indent: str) -> list[str]:
    """A line of text must not begin with what begins a list or a heading: the word before it comes along."""
    out = lines[:1]
    for line in lines[1:]:
        if _STARTS_SOMETHING.match(line.strip()) and " " in out[-1].strip():
            before, _, word = out[-1].rpartition(" ")
            out[-1] = before.rstrip()
            line = f"{indent}{word} {line.strip()}"
        out.append(line)
    return out


# ---------------------------------------------------------------------- tables
def _cells(row: str) -> list[str]:
    """Return the cells of a row; a border inside of code is escaped, as GitHub wants it."""
    inside = row.strip()
    inside = inside[1:-1] if inside.endswith("|") else inside[1:]
    return [cell.strip() for cell in _CELL_BORDER.split(inside)]


def _words(row: str) -> list[int]:
    return [len(cell.split()) for cell in _cells(row)]


def main() -> int:
    """Write the pages; return the exit status: 1 if something is too long still."""
    left = []
    for page in pages():
        text, name = page.read_text(), page.relative_to(ROOT).as_posix()
        new = text
        if "--check" not in sys.argv and name not in GENERATED:
            new = shaped(text)
            if new != text:
                page.write_text(new)
                print(f"{name}: put into shape")
        left += [f"{name}:{complaint}" for complaint in complaints(new)]
    print("\n".join(left) or "nothing is too long")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
