"""Which files of the product the simulation judges, and a digest of what is in them.

A seed says something about the code of these files and nothing about others: what was run stays valid while that stays
as it is, whatever else a commit changes, comments and docstrings of these files among it. Reads files only.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHOLE_FOLDERS = ("state", "proxy/producer", "proxy/broker", "proxy/partition_log", "proxy/flow")
IMPORTED_FOLDER = "codecs"
"""Of it what these import: it has codecs for other parts of the product as well."""
SINGLE_FILES = (
    "src/idemproxy/values.py",
    "proxy/admission/long_work.py",
    "proxy/session/produce.py",
    "proxy/session/init_producer.py",
    "proxy/pass_through/connection.py",
    "proxy/pass_through/produce_connections.py",
    "proxy/pass_through/produce.py",
    "proxy/pass_through/write_acl.py",
)
"""Of the other rooms: what decides about a batch. The rest of them carries it, or tells of it."""
DIGEST_CHARACTERS = 12


def core_files(root: Path = ROOT) -> list[Path]:
    """Every file of the core, in one order."""
    found = [path for folder in WHOLE_FOLDERS for path in (root / folder).rglob("*.py")]
    found += [root / name for name in SINGLE_FILES]
    for path in found:  # grows while it is read
        found += [one for one in _imported(root, path) if one not in found]
    return sorted(found)


def _imported(root: Path, path: Path) -> list[Path]:
    """The modules of ``IMPORTED_FOLDER`` that a file imports; this project's imports are relative."""
    place = path.relative_to(root).parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            module = (*place[: len(place) - node.level], *(node.module or "").split("."))
            names = [module, *((*module, one.name) for one in node.names)]
            modules = [root.joinpath(*one) for one in names if one[0] == IMPORTED_FOLDER]
            found |= {one.with_suffix(".py") for one in modules} | {one / "__init__.py" for one in modules}
    return sorted(one for one in found if one.exists())


def core_digest(root: Path = ROOT) -> str:
    """A short name of what the core is now; another one after any change to its code."""
    digest = hashlib.sha256()
    for path in core_files(root):
        digest.update(f"{path.relative_to(root)} {code_of(path.read_text())}\n".encode())
    return digest.hexdigest()[:DIGEST_CHARACTERS]


@cache
def code_of(source: str) -> str:
    """What a program does, the same for every version of Python: its syntax tree, without comments, docstrings and
    places. Raises SyntaxError."""
    return _shape(ast.parse(source))


def _shape(value: object) -> str:
    if isinstance(value, list):
        return ",".join(_shape(one) for one in value if not _is_docstring(one))
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = ((name, content) for name, content in ast.iter_fields(value) if content is not None and content != [])
    return f"{type(value).__name__}({' '.join(f'{name}={_shape(content)}' for name, content in fields)})"


def _is_docstring(value: object) -> bool:
    """Also of an attribute: a string that nothing is done with."""
    return isinstance(value, ast.Expr) and isinstance(value.value, ast.Constant) and isinstance(value.value.value, str)
