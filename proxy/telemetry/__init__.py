"""What the proxy reports: metrics, spans, log lines, the journal. They take events and decide nothing."""
