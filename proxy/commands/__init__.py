"""What the command line offers beside ``run``: ``check``, ``schema``, ``inspect``, ``forget``."""
