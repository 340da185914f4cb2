"""``idemproxy rebuild``: the state of all producers from the logs into Redis, at once. Knows the keys and values of the
proxies only through ``state``."""
