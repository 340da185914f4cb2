"""``idemproxy rebuild``: writes the state of all producers, as the logs tell it, into Redis at once. Knows the proxies'
keys and values only through ``state``."""
