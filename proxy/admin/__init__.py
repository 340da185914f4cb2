"""What an operator sees of a running proxy: health, metrics, JSON and a status page, on a port of its own."""
