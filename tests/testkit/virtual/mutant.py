"""The shipped package with a few expressions changed, imported from the same files: under another name, or in its own
place.

The syntax tree is changed before it is compiled, so the product has no switch for this, formatting and comments do not
matter, and a patch of what is no longer there is an error. Owns importing only; what matters is said by the tests.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from types import CodeType, ModuleType

ORIGINAL = "idemproxy"
Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Patch:
    """``module``: without the package's name. ``function``: as in ``Class.method``; also a class, or empty: the module.

    ``old``: an expression of it, or a simple statement, in any formatting. ``new``: what stands instead: an expression,
    or any number of statements. Where ``old`` is empty, ``new`` stands before the function itself. ``which``: of
    several that are equal, from 1; 0: there has to be one."""

    module: str
    function: str
    old: str
    new: str
    which: int = 0


class PatchError(Exception):
    """The shipped source is no longer what the patch was made for."""


class _Replacing(ast.NodeTransformer):
    """Puts something else in the place of one node."""

    def __init__(self, old: ast.AST, new: ast.expr | list[ast.stmt]) -> None:
        self._old = old
        self._new = new

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        return self._new if node is self._old else self.generic_visit(node)


def patch_tree(tree: ast.Module, patch: Patch) -> None:
    """Change the tree of the patch's module."""
    scopes = [tree] if not patch.function else _named(tree, patch.function.split("."))
    new: ast.expr | list[ast.stmt] = ast.parse(patch.new or "pass").body
    if patch.old:
        old: ast.AST = ast.parse(patch.old).body[0]
        assert isinstance(new, list)
        if isinstance(old, ast.Expr) and len(new) == 1 and isinstance(new[0], ast.Expr):
            old, new = old.value, new[0].value
        found = [node for scope in scopes for node in ast.walk(scope) if _is_same(node, old)]
        found.sort(key=lambda node: (node.lineno, node.col_offset))  # type: ignore[attr-defined]
    else:
        found = list(scopes)
    if not (patch.which <= len(found) if patch.which else len(found) == 1):
        where = f"{patch.module}, {patch.function or 'module'}"
        raise PatchError(f"{where} has {patch.old!r} {len(found)} times: the mutant has to follow the source")
    place = found[patch.which - 1 if patch.which else 0]
    for made in new if isinstance(new, list) else [new]:
        for node in ast.walk(made):
            ast.copy_location(node, place)
    if not patch.old:
        assert isinstance(new, list)
        new.append(place)  # type: ignore[arg-type]
    _Replacing(place, new).visit(tree)


def _named(scope: ast.AST, names: Sequence[str]) -> list[Scope]:
    """All definitions of this name, as a property may have two."""
    found: list[Scope] = []
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found += () if isinstance(node, ast.expr) else _named(node, names)
        elif node.name == names[0]:
            found += _named(node, names[1:]) if len(names) > 1 else [node]
    return found


def _is_same(node: ast.AST, wanted: ast.AST) -> bool:
    is_target = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
    return type(node) is type(wanted) and not is_target and ast.unparse(node) == ast.unparse(wanted)


class _Loader(InspectLoader):
    """Executes the original's source, patched."""

    def __init__(self, original: ModuleSpec, patches: Sequence[Patch]) -> None:
        self._original = original
        self._patches = patches

    def is_package(self, fullname: str) -> bool:
        return self._original.submodule_search_locations is not None

    def get_source(self, fullname: str) -> str:
        if self._original.origin is None:
            return ""  # a folder without an __init__
        with open(self._original.origin, encoding="utf-8") as file:
            return file.read()

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_source(fullname))
        for patch in self._patches:
            patch_tree(tree, patch)
        code = compile(tree, self._original.origin or fullname, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class _Finder(MetaPathFinder):
    """Finds every module of the copy."""

    def __init__(self, name: str, patches: Sequence[Patch]) -> None:
        self._name = name
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name and not fullname.startswith(self._name + "."):
            return None
        rest = fullname[len(self._name) + 1 :]
        original = importlib.util.find_spec(f"{ORIGINAL}.{rest}" if rest else ORIGINAL)
        if original is None:
            return None
        if isinstance(original.loader, ExtensionFileLoader) and original.origin is not None:  # compiled: as it is
            return importlib.util.spec_from_file_location(fullname, original.origin)
        patches = [patch for patch in self._patches if patch.module == rest]
        spec = ModuleSpec(fullname, _Loader(original, patches), origin=original.origin)
        if original.submodule_search_locations is not None:
            spec.submodule_search_locations = list(original.submodule_search_locations)
        return spec


class _InPlace(MetaPathFinder):
    """Finds only what is patched, under its own name; all else comes as always."""

    def __init__(self, patches: Sequence[Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patches = [patch for patch in self._patches if f"{ORIGINAL}.{patch.module}" == fullname]
        original = PathFinder.find_spec(fullname, path) if patches else None
        return None if original is None else ModuleSpec(fullname, _Loader(original, patches), origin=original.origin)


@contextmanager
def patched_package(name: str, patches: Sequence[Patch]) -> Iterator[str]:
    """Import under ``name`` while this is entered. Every patched module is imported at once, so a stale patch shows."""
    finder = _Finder(name, patches)
    sys.meta_path.insert(0, finder)
    try:
        for patch in patches:
            importlib.import_module(f"{name}.{patch.module}")
        yield name
    finally:
        sys.meta_path.remove(finder)
        for module in [module for module in sys.modules if module == name or module.startswith(name + ".")]:
            del sys.modules[module]


def patch_in_place(patches: Sequence[Patch]) -> None:
    """From now on this process has only the patched package. Nothing of the shipped one may be imported yet."""
    present = [module for module in sys.modules if module == ORIGINAL or module.startswith(ORIGINAL + ".")]
    assert not present, f"imported already: {present[:3]}"
    sys.meta_path.insert(0, _InPlace(patches))
    for patch in patches:
        importlib.import_module(f"{ORIGINAL}.{patch.module}")
