"""Fuzzes one target in this process until its time is over: ``python -m fuzz.one TARGET [libFuzzer's options]``.

Started by ``fuzz.run``; what breaks is printed and kept by libFuzzer, and ends the process."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["idemproxy"], enable_loader_override=False):
    from fuzz.targets import TARGETS


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
