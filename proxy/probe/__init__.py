"""What a cluster does with batches, as it was seen, and in which form a proxy can serve it. Pure."""
