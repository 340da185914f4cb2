"""Hidden ranges: duplicates that fetches leave out. Known from the store, applied to answers of brokers."""
