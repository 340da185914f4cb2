"""A probe of a cluster with its topic, batches and connections: for ``idemproxy probe``, and for ``idemproxy run``."""
