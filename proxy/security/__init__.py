"""Who is there, on both sides: TLS, its certificates, and SASL. What somebody may do is the broker's decision."""
