"""The first exchange on a new connection: log in, check the server; later, load the swap script. Sans-IO. It decides
whether the server may be used at all. The heartbeat asks the same questions again through ``ask_info``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .redis_facts import (
    eviction_refusal_of,
    parse_info,
    refusal_of,
    script_sha,
    swap_script,
)
from .redis_link import RedisLink, Reply, ReplyError, pack
from .store import StoreAway

_LOGIN_CODES = ("WRONGPASS", "NOAUTH", "NOPERM")
_BRIEF = (b"server", b"replication")
_WHOLE = (*_BRIEF, b"memory", b"persistence")

Refuse = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials for the login; ``repr`` shows no password."""

    username: str | None
    password: str | None
    database: int

    def __repr__(self) -> str:
        return f"Login(database={self.database})"


def give_up_on(link: RedisLink, refuse: Refuse, reply: Reply | StoreAway) -> None:
    """End a connection on which a step failed. ``refuse`` is called with a sentence for what only an operator can
    correct; after anything else the link is reset, and its owner tries again."""
    if isinstance(reply, StoreAway):
        return  # the link has ended already, and that was reported
    if not isinstance(reply, ReplyError):
        link.reset("Redis gave a reply of the wrong kind")
    elif reply.code in _LOGIN_CODES:
        refuse(f"Redis refuses the login or a command: {reply.text}")
    elif reply.text.startswith("ERR AUTH "):
        refuse("Redis has no password, but one is configured for it")
    elif reply.text.startswith("ERR DB index"):
        refuse(f"Redis does not have the database that is configured: {reply.text}")
    else:
        link.reset(f"Redis answered: {reply.text}")


def ask_info(link: RedisLink, whole: bool, refuse: Refuse, done: Callable[[dict[str, str]], None]) -> None:
    """Ask for the server's identity and settings; ``whole``: also for how it keeps its data. ``done`` gets the fields
    of all sections."""
    sections = _WHOLE if whole else _BRIEF
    info: dict[str, str] = {}
    missing = len(sections)

    def take(reply: Reply | StoreAway) -> None:
        nonlocal missing
        missing -= 1
        if not isinstance(reply, bytes):
            give_up_on(link, refuse, reply)
            return
        info.update(parse_info(reply))
        if not missing:
            done(info)

    for section in sections:
        link.call(pack(b"INFO", section), take)


def load_swap_script(link: RedisLink, data_generation: bytes, refuse: Refuse, loaded: Callable[[bytes], None]) -> None:
    """Load the swap script of this data generation. ``loaded`` gets the name by which EVALSHA calls it."""
    text = swap_script(data_generation)
    sha = script_sha(text)

    def take(reply: Reply | StoreAway) -> None:
        if reply == sha:
            loaded(sha)
        else:
            give_up_on(link, refuse, reply)

    link.call(pack(b"SCRIPT", b"LOAD", text), take)


class Greeting:
    """Runs once. ``greeted`` gets the fields of INFO if nothing failed; else ``refuse`` was called or the link was
    reset. Nothing is written."""

    def __init__(
        self,
        link: RedisLink,
        login: Login,
        refuse: Refuse,
        greeted: Callable[[dict[str, str]], None],
    ) -> None:
        self._link = link
        self._refuse = refuse
        self._greeted = greeted
        if login.password is not None:
            user = (login.username.encode(),) if login.username else ()
            link.call(pack(b"AUTH", *user, login.password.encode()), self._expect_ok)
        if login.database:
            link.call(pack(b"SELECT", b"%d" % login.database), self._expect_ok)
        ask_info(link, True, refuse, self._look_at)

    def _expect_ok(self, reply: Reply | StoreAway) -> None:
        if reply != b"OK":
            give_up_on(self._link, self._refuse, reply)

    def _look_at(self, info: dict[str, str]) -> None:
        refusal = refusal_of(info) or eviction_refusal_of(info)
        if refusal is not None:
            self._refuse(refusal)
            return
        if info.get("loading", "0") != "0":
            self._link.reset("Redis is still loading its data")
            return
        self._greeted(info)
