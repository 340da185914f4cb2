"""idemproxy: a Kafka wire-protocol proxy that gives producers idempotence on brokers that have none."""

__version__ = "0.1.0"
DOCUMENTATION = "https://idemproxy.example/0.1"
"""Where the pages of this version are, as in pyproject.toml: messages name one below it."""
