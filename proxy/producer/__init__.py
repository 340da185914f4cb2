"""One producer on one partition: what is decided about its batches, reserved, appended, answered and committed."""
