"""Sockets, connections and TLS under one event loop. Knows no Kafka."""
