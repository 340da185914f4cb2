"""What may have been meant by a word that is not known. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def meant(name: str, known: Sequence[str], *, lists_all: bool = True) -> str:
    """Return a text to append to an error: "; did you mean ...?" if a known name is close, else all known names if
    ``lists_all``, else nothing."""
    begun = [one for one in known if len(name) > 2 and one.startswith(name)]
    close = begun or difflib.get_close_matches(name, known, 1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(known)}" if lists_all else ""
