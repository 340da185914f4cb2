"""The journal of a proxy, for those who read it: its files in the order of time, and ``idemproxy journal cat``. Knows
no Spark, and needs no extra."""
