"""One client connection, whatever is spoken on it: its shell, and what stands behind the shell. Knows no Kafka."""
