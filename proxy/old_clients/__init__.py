"""Which clients still send versions of APIs that Kafka 4 lacks."""
