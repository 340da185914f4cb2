"""One client connection, whatever is spoken on it: its shell, and the handler that the shell calls. Knows no Kafka."""
