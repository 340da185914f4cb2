"""Retroactive tombstones: second copies that fetches leave out. Known from the store, applied to answers of brokers."""
