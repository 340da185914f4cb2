"""idemproxy: a Kafka wire-protocol proxy that gives producers idempotence on brokers that have none."""

__version__ = "0.1.0"
