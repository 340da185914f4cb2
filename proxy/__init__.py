"""The proxy: sessions, flows, produce connections and the thin shells that move their bytes."""
