"""The style of pages: how long a sentence may be, which words this project does not use, and which links lead nowhere.

Code blocks and the targets of links are not prose. A code span counts as one word. Lines of a page begin with 1.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

SENTENCE_WORDS_MAX = 25
PARAGRAPH_WORDS_MAX = 90
CELL_WORDS_MAX = 12

_PLACE = r"(?:(?:a|an|the|one|both|several|two|each|that|this|its|your) )?(?:[\w-]+ )?"
_PUBLISHED = r"\bidemproxy\["
_NOT_PUBLISHED = "no package index has the project: '.[extra]' in a checkout"
_FORBIDDEN: tuple[tuple[str, str], ...] = (
    (r"\btold\b", "the proxy returns ..., or: reported"),
    (r"(?<!\bin )\bdoubts?\b", "an unknown outcome"),
    (r"\bgiven up\b", "unrecoverable"),
    (r"\bincarnations?\b", "proxy instance"),
    (r"(?<!data )(?<!group )(?<!group's )\bgenerations?\b", "Redis data generation"),
    (r"\beras?\b", "lease epoch"),
    (r"\b(?:new|third|second|each|one|its|a) life\b|\blife of\b", "Redis data generation, or proxy instance"),
    (r"\blanes?\b", "produce connection"),
    (r"\bsecond cop(?:y|ies)\b", "duplicate"),
    (r"\banew\b", "again, or: recreated"),
    (r"\bmend(?:s|ed|ing)?\b", "fix"),
    (r"\bwhoever\b", "any client that"),
    (r"\bbesides?\b", "compared with, next to"),
    (rf"\bbehind\b(?! {_PLACE}(?:prox(?:y|ies)|balancers?|NAT|firewalls?|gateways?|services?|ingress)\b)", "after"),
    (r"\bin turns\b", "alternately"),
    (r"\bownership\b|\bowned\b", "append reservation"),
    (r"\bsettle[sd]?\b|\bseen awake\b", "quiescence check"),
    (r"\bblurred\b", "ambiguous"),
    (r"\bsuspects?\b", "unverified"),
    (r"\bclaims?\b", "takeover"),
    (r"\bpark(?:s|ed|ing)?\b", "wait"),
    (r"\bwish(?:es|ed)?\b", "request"),
    (r"\bshards?\b", "conditional partition"),
    (r"(?<!Kafka )(?<!Kafka's )(?<!retroactive )\btombstones?\b", "hidden range"),
    (
        r"\b(?:producer's|producers'|its own|own) numbers\b|\bnumbers of (?:a|the) producer",
        "producer id, epoch, sequence",
    ),
    (r"\bnamed producers?\b", "producer name"),
    (r"\b(?:goes|go|going|went) on\b", "resumes, continues, is unaffected"),
    (r"\bold(?:er)? (?:message )?formats?\b", "message format v1"),
    (r"\bbrokers? (?:with|without|that have) producer ids\b", "Kafka >= 0.11, Kafka 0.10"),
    (_PUBLISHED, _NOT_PUBLISHED),
)
_HISTORY: tuple[tuple[str, str], ...] = (
    (r"\b20\d\d-\d\d(?:-\d\d)?\b", "no dates"),
    (
        r"\b(?:January|February|March|April|June|July|August|September|October|November|December) (?:\d\d?, )?20\d\d\b",
        "no dates",
    ),
    (r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b", "no commit ids"),
    (r"\bformerly\b|\bpreviously\b|\bwas (?:fixed|added|changed|renamed)\b|\btried by hand\b", "no history"),
)
_NUMBERS = (
    r"(?<!exit )(?<!status )\b(?:errors?|codes?|error codes?) (?:number )?\d{1,3}\b(?!\.\d)"
    r"|\b(?:told|gets?|got|returns?|answers?) \d{1,3}(?=[.,;)]| (?:to|for|and|or|as|if|when|that)\b)"
)
_NUMBER = (_NUMBERS, "the error by its name")
_IN_CODE: tuple[tuple[str, str], ...] = (
    (_PUBLISHED, _NOT_PUBLISHED),
    (r"\btests/\w", "no test paths"),
    (r"^make [a-z-]+", "no make targets"),
)
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|no)\.", re.IGNORECASE)
_WORD = re.compile(r"\S*\w\S*")
_ADMONITION = re.compile(r'^(?:!!!|\?\?\?\+?) \w+(?: "[^"]*")?')
_CODE = "«code»"
"""What stands for a code span in the text that is measured: one word."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong on a line of a page, and what the style asks for."""

    line: int
    problem: str
    text: str

    def at(self, page: str) -> str:
        """Return it as a line of an error message."""
        return f"{page}:{self.line}: {self.problem}: {self.text}"


@dataclass(frozen=True, slots=True)
class Block:
    """A heading, paragraph or cell: its first line, its text with ``code`` for each code span, and the spans."""

    kind: str
    line: int
    text: str
    code: tuple[str, ...]
    links: tuple[str, ...]


def _parsed(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def _block(kind: str, line: int, inline: Token) -> Block:
    words, code, links = [], [], []
    for child in inline.children or []:
        if child.type == "text":
            words.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            words.append(" ")
        elif child.type == "code_inline":
            words.append(_CODE)
            code.append(child.content)
        elif child.type == "link_open":
            links.append(str(child.attrs["href"]))
        elif child.type == "image":
            links.append(str(child.attrs["src"]))
        elif child.type == "html_inline":
            links += re.findall(r'\b(?:href|src)="([^"]+)"', child.content)
    return Block(kind, line, _ADMONITION.sub("", "".join(words)).strip(), tuple(code), tuple(links))


def blocks_of(text: str) -> Iterator[Block]:
    """Yield headings, paragraphs and cells of a page, in order."""
    kind, line = "paragraph", 1
    for token in _parsed(text):
        if token.type == "tr_open" and token.map:
            line = token.map[0] + 1
        if token.type in ("heading_open", "paragraph_open", "th_open", "td_open"):
            kind = {"heading": "heading", "paragraph": "paragraph"}.get(token.type.removesuffix("_open"), "cell")
        if token.type == "inline":
            if kind != "cell" and token.map:
                line = token.map[0] + 1
            yield _block(kind, line, token)


def _words(text: str) -> int:
    return len(_WORD.findall(text))


def _sentences(text: str) -> list[str]:
    whole = _ABBREVIATIONS.sub(lambda match: match[1].replace(".", "") + ",", text)
    return [sentence for sentence in re.split(r"(?<=[.!?])[\"”)]*\s+", whole) if sentence]


def _too_long(block: Block) -> Iterator[Finding]:
    if block.kind == "cell":
        if (words := _words(block.text)) > CELL_WORDS_MAX:
            yield Finding(block.line, f"a cell of {words} words (at most {CELL_WORDS_MAX})", block.text)
        return
    if (words := _words(block.text)) > PARAGRAPH_WORDS_MAX:
        start = " ".join(block.text.split()[:8])
        yield Finding(block.line, f"a paragraph of {words} words (at most {PARAGRAPH_WORDS_MAX})", f"{start} ...")
    for sentence in _sentences(block.text):
        if (words := _words(sentence)) > SENTENCE_WORDS_MAX:
            yield Finding(block.line, f"a sentence of {words} words (at most {SENTENCE_WORDS_MAX})", sentence)


def _named(block: Block, patterns: Collection[tuple[str, str]]) -> Iterator[Finding]:
    for pattern, instead in patterns:
        for match in re.finditer(pattern, block.text, re.IGNORECASE):
            around = block.text[max(0, match.start() - 30) : match.end() + 30]
            yield Finding(block.line, f"{match[0]!r} ({instead})", f"... {around} ...")


def wording(text: str) -> Iterator[Finding]:
    """Yield the words that this project does not use, and errors by number, in plain text: a message, a help text."""
    prose = " ".join(re.sub(r"``.*?``|`[^`]*`", _CODE, text, flags=re.DOTALL).split())
    yield from _named(Block("paragraph", 1, prose, (), ()), (*_FORBIDDEN, _NUMBER))


def findings(
    text: str, *, history: bool = False, numbers: bool = False, commands: bool = False, diagrams: bool = False
) -> Iterator[Finding]:
    """Yield what the style asks to be changed on a page.

    ``history``, ``numbers``, ``commands`` and ``diagrams`` say that the page may have dates and commits, error codes as
    numbers, make targets with paths of tests, and diagrams that only forges draw.
    """
    for block in blocks_of(text):
        yield from _too_long(block)
        yield from _named(block, _FORBIDDEN)
        if not history:
            yield from _named(block, _HISTORY)
        if not numbers:
            yield from _named(block, [_NUMBER])
        if not commands:
            for span in block.code:
                for pattern, instead in _IN_CODE:
                    if re.search(pattern, span):
                        yield Finding(block.line, instead, span)
    for token in () if diagrams else _parsed(text):
        if token.type == "fence" and token.map and token.info.startswith("mermaid"):
            yield Finding(token.map[0] + 1, "a diagram without a picture (pictures/*.svg)", "mermaid")
    if not commands:
        for token in _parsed(text):
            if token.type == "fence" and token.map and re.search(r"^\s*\$? ?make [a-z]", token.content, re.MULTILINE):
                yield Finding(token.map[0] + 1, "no make targets", token.content.strip().splitlines()[0])


def anchor_of(heading: str) -> str:
    """Return the anchor that the site gives to a heading."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def anchors_of(text: str) -> set[str]:
    """Return all anchors of a page: of its headings, and those that are written out."""
    found = set(re.findall(r'\bid="([^"]+)"', text)) | set(re.findall(r"\{[^}\n]*#([\w-]+)[^}\n]*\}", text))
    counts: dict[str, int] = {}
    for heading in _headings(text):
        anchor = anchor_of(re.sub(r"\s*\{[^}]*\}\s*$", "", heading))
        found.add(anchor if anchor not in counts else f"{anchor}_{counts[anchor]}")
        counts[anchor] = counts.get(anchor, 0) + 1
    return found


def _headings(text: str) -> Iterator[str]:
    tokens = _parsed(text)
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            children = tokens[number + 1].children or []
            yield "".join(child.content for child in children if child.type in ("text", "code_inline"))


def dead_links(page: Path, root: Path, with_references: Callable[[str], str]) -> Iterator[Finding]:
    """Yield the relative links of a page that lead to no file below ``root``, or to no heading there.

    ``with_references`` adds what the site adds to a page while it is built.
    """
    for block in blocks_of(page.read_text()):
        for link in block.links:
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page.resolve()
            if not target.is_relative_to(root):
                yield Finding(block.line, "a link that leaves the repository", link)
            elif not target.is_file():
                yield Finding(block.line, "a link to no file", link)
            elif anchor and target.suffix == ".md" and anchor not in anchors_of(with_references(target.read_text())):
                yield Finding(block.line, "a link to no heading", link)
