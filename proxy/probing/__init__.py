"""A probe of a cluster: its topic, its batches and its connections, for ``idemproxy probe`` and for ``idemproxy run``."""
