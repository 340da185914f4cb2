"""``idemproxy inspect``, ``forget`` and ``hide``: what is stored in Redis, and what only running proxies know, for
people and for scripts."""
