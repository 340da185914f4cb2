"""One file per bridged API: what changes between the version a client speaks and the version the broker speaks."""
