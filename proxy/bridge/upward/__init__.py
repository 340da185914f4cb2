"""Requests of versions that Kafka 4 no longer serves: rewritten to one that it serves, and the answers back down."""
