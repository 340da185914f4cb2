"""The exactly-once sink of ``format("idemproxy")``: tasks stage finished batches, the driver publishes them."""
