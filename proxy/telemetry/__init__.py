"""What is told of it: metrics, spans, lines of the log, the journal. They take events and decide nothing."""
