"""What a client shows with OAUTHBEARER to a broker that takes tokens without a signature."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode


def web_token(name: str, expires_in: float = 3600) -> bytes:
    """A JSON web token that nobody has signed."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": name, "iat": now - 10, "exp": now + expires_in})
    return b".".join([*(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts), b""])


def bearer(token: bytes) -> bytes:
    """What a client says first."""
    return b"n,,\x01auth=Bearer " + token + b"\x01\x01"
