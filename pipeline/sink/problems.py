"""Why the sink stops."""


class SinkProblem(Exception):
    """The message is a sentence or two for the person who runs the query: what is wrong, and what can be done."""
