"""The commands ``check``, ``schema``, ``inspect``, ``forget`` and ``tombstone``, and the options of all commands."""
