"""What a partition's log holds: where it ends, what lies at an offset, and whether a batch is in it. Only reads."""
