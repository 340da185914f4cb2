"""The data pipeline on Spark: ``audit``, ``idemproxy audit``; ``source``, ``format("idemproxy")``; both stand on
``reading``. Needs the extra ``idemproxy[spark]``, but for ``journal``; the proxy never imports it."""
