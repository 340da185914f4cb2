"""``spark.read`` and ``readStream`` of ``format("idemproxy")``: records or batches of topics, over our own raw Fetch.

What is asked for (``options``, ``offsets``), which task reads what (``planning``) and what becomes of the bytes
(``records``, ``batches``) is pure; ``positions`` asks the brokers from the driver, ``tasks`` reads from executors."""
