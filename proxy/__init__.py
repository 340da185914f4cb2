"""The proxy: sessions, flows, lanes and the thin shells that move their bytes."""
