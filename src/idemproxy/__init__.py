"""idemproxy: a Kafka wire-protocol proxy that gives producers idempotence on brokers that have none."""

__version__ = "0.1.0"
DOCUMENTATION = "https://idemproxy.example/0.1"
"""Where the pages of this version are, as in pyproject.toml: messages name one below it."""


def installation_of(extra: str) -> str:
    """Return the command that installs an extra, as the pages have it: no package index has the project."""
    return f"pip install '.[{extra}]' in a checkout of idemproxy"
