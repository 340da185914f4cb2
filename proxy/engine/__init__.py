"""The proxy without sockets and trio: everything below wired together. The simulation runs it as it is."""
