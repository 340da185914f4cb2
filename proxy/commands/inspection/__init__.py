"""``idemproxy inspect``, ``forget`` and ``hide``: what is stored in Redis, for people and for scripts."""
