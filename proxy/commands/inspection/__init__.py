"""``idemproxy inspect``, ``forget`` and ``tombstone``: what is stored in Redis, for people and for scripts."""
