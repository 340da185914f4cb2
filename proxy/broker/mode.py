"""Who gives producers of one process their idempotence: set, or chosen by what the brokers are. Decides nothing
(``served.py`` does) and asks nobody."""

from __future__ import annotations

from .served import Idempotence


class Mode:
    """``wanted``: what is set; None: it is chosen, when all brokers have told what they are, and goes on to the next
    one when all of them have been upgraded. ``chosen``: None until it is chosen."""

    __slots__ = ("chosen", "wanted")

    def __init__(self, wanted: Idempotence | None) -> None:
        self.wanted = wanted
        self.chosen = wanted

    @classmethod
    def of_setting(cls, said: str) -> Mode:
        """Return the mode of ``upstream.idempotence``: auto, native or proxy."""
        return cls(None if said == "auto" else Idempotence(said))

    @property
    def may_hand_over(self) -> bool:
        """Does the proxy give it as long as the brokers are upgraded (rule R21)?"""
        return self.wanted is None and self.chosen is Idempotence.PROXY

    @property
    def is_native(self) -> bool:
        """Do the brokers give it?"""
        return self.chosen is Idempotence.NATIVE
