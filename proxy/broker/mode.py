"""Who gives idempotence to the producers of one process, the proxy or the brokers: configured, or chosen by what the
brokers are. Only keeps it; ``served.py`` says what to choose, ``topology.py`` chooses."""

from __future__ import annotations

from .served import Idempotence


class Mode:
    """``wanted``: what is configured; None: it is chosen once it is known whether all brokers have producer ids.
    ``chosen``: the mode now; None until it is chosen."""

    __slots__ = ("chosen", "wanted")

    def __init__(self, wanted: Idempotence | None) -> None:
        self.wanted = wanted
        self.chosen = wanted

    @classmethod
    def of_setting(cls, said: str) -> Mode:
        """Return the mode of ``upstream.idempotence``: auto, native or proxy."""
        return cls(None if said == "auto" else Idempotence(said))

    @property
    def is_native(self) -> bool:
        """Do the brokers give it?"""
        return self.chosen is Idempotence.NATIVE
