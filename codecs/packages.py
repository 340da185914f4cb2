"""Modules out of packages whose ``__init__`` imports a whole client library.

``import kafka.protocol.metadata`` runs ``kafka/__init__.py`` first, and with it a consumer, a producer and an admin
client; that of ``aiokafka`` is alike. A proxy uses neither: together they are 20 MB of its memory and a third of its
start. So such a package is put into ``sys.modules`` as it stands before its ``__init__`` runs, and that runs as soon as
somebody asks for a name of the package itself (PEP 562), in the same module object: for other code in the process
nothing is missing and nothing is there twice. The standard library's LazyLoader cannot do this: it runs the
``__init__`` for the ``__path__`` that every import of a submodule asks for."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from threading import RLock
from typing import Any


@contextmanager
def without_init(*names: str) -> Iterator[None]:
    """Import modules of these packages inside of this block; parents come before their children. What was imported
    before is left as it is, and what is not there gives the error that its import gives."""
    for name in names:
        if name not in sys.modules:
            _put_aside(name)
    yield


def _put_aside(name: str) -> None:
    spec = find_spec(name)
    if spec is None or (loader := spec.loader) is None:
        return
    package = module_from_spec(spec)
    running = False
    lock = RLock()

    def run_init(wanted: str) -> Any:
        nonlocal running
        with lock:  # another thread waits until the names are there
            if package.__dict__.get("__getattr__") is run_init:
                if running:  # the __init__ itself asks, for what it defines further below
                    raise AttributeError(f"partially initialized module {name!r} has no attribute {wanted!r}")
                running = True
                try:
                    # For how the library reads its own files: its users need no warning.
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", DeprecationWarning)
                        loader.exec_module(package)
                finally:
                    running = False
                if package.__dict__.get("__getattr__") is run_init:  # unless it has brought one
                    del package.__dict__["__getattr__"]
        return getattr(package, wanted)

    package.__dict__["__getattr__"] = run_init
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)
