"""What is set: YAML and environment come in through pydantic, frozen and plain settings come out. Nothing here acts."""
