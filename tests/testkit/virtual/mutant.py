"""The shipped package with some lines changed, imported from the same files: under another name, or in its own place.

The source text is patched before it is compiled, so the product has no switch for this, and a patch whose line is no
longer there (or is there twice) is an error. Owns importing only; which lines matter is said by the tests.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Patch:
    """``module``: without the package's name. ``old`` must be in its source exactly once."""

    module: str
    old: str
    new: str


class PatchError(Exception):
    """The shipped source is no longer what the patch was made for."""


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
            text = file.read()
        for patch in self._patches:
            found = text.count(patch.old)
            if found != 1:
                raise PatchError(f"{patch.module} has {patch.old!r} {found} times: the mutant has to follow the source")
            text = text.replace(patch.old, patch.new)
        return text

    def get_code(self, fullname: str) -> CodeType:
        code = compile(self.get_source(fullname), self._original.origin or fullname, "exec", dont_inherit=True)
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
