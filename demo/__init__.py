"""The demonstration: a real old broker, a real producer, injected faults, and a count of what went wrong."""
