"""``idemproxy inspect`` and ``idemproxy forget``: what is stored in Redis, for people and for scripts."""
