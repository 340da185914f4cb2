"""The exactly-once patterns as jobs: functions from DataFrame to DataFrame, and thin commands that run them between
``format("idemproxy")`` and itself. What is once in the log and in order is up to the sink (``pipeline.sink``)."""
