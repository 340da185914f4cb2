"""``idemproxy audit``: duplicates, gaps and inversions of whole topics, counted. Writes nothing to the brokers."""
