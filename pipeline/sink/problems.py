"""Why the sink does not go on."""


class SinkProblem(Exception):
    """The message is a sentence or two for the person who runs the query: what is wrong, and what can be done."""
