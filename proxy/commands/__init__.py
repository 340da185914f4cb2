"""The commands ``check``, ``schema``, ``inspect``, ``forget`` and ``hide``, and the options of all commands."""
