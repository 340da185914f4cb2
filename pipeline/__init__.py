"""The data pipeline on Spark: ``idemproxy audit``. Needs the extra ``idemproxy[spark]``; the proxy never imports it."""
