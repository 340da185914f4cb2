"""``idemproxy probe``: what a cluster does with batches, on a topic of its own, and how a proxy could serve it."""
