"""The data pipeline, mostly on Spark: ``source`` and ``sink`` are ``format("idemproxy")``; ``audit``, ``jobs``,
``rebuild`` and ``journal`` are commands. What reads logs does it through ``reading``. Needs the extra
``[spark]``, but for ``journal``. A proxy that serves imports nothing of it but ``audit/kinds.py``, which is
data, for the options of the command line."""
