"""What is said where the state under a cluster name in Redis is another cluster's. Pure: ``state/redis_claim.py``
compares."""

from __future__ import annotations


def mismatch(cluster: str, kept: bytes, reported: str) -> str:
    """Return the sentence that says that the state under a name belongs to other brokers. ``kept``: the id that Redis
    has."""
    return (
        f"cluster name {cluster!r}: Redis keeps under it the state of the cluster with the id "
        f"{kept.decode('utf-8', 'backslashreplace')}, and these brokers tell {reported}; another cluster needs another "
        "name (setting: cluster_name)"
    )
