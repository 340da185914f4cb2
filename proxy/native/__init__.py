"""Clients of brokers that have producer ids of their own: bytes go on as they are, only addresses are the proxy's."""
