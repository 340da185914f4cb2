"""An idempotent producer without I/O: what may be sent under which sequence, what an answer means, and which batch is
in the log. Sockets, threads, the clock and chance are given by who uses it: ``client/`` does. Knows no Redis and no
proxy, so the proxy may write with it too."""
