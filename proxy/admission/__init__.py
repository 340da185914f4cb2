"""Who is let in, and what each client may take of memory and of the loop's time. Knows no Kafka."""
