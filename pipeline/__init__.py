"""The data pipeline on Spark: ``audit``, ``idemproxy audit``; ``source``, ``format("idemproxy")``; both stand on
``reading``. Needs the extra ``idemproxy[spark]``; the proxy never imports it."""
