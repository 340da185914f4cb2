"""Which connections are admitted, and how much each client may take of memory and of the loop's time. Knows no
Kafka."""
