"""Logs of Kafka, raw: fetched or from segment files, and taken apart. Knows no Spark; writes nothing."""
