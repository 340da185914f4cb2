"""The brokers: which there are, who leads what, the connections to each, and the produce requests that go out."""
