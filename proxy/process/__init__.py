"""The process around the engine: start, reload and end, ports, the data directory, Redis, memory. Trio lives here."""
