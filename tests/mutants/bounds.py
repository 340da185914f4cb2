"""Mutants of where a search begins, and over which connection it reads: rules R6, R8."""

from __future__ import annotations

from mutants.mutant import mutant

BOUNDS = (
    mutant(
        "anchor_at_another_place",
        "R8: the record below a bound is the same only where it ends there",
        "unit/test_core_bounds.py::test_the_message_below_a_bound_is_not_the_same_where_it_lies_elsewhere",
        ("proxy.resolver", " and ends_below(below, bound.offset)\n", "\n"),
    ),
    mutant(
        "probes_wait_behind_fetches",
        "R6: logs are read over a connection of its own",
        "unit/test_core_whom_to_ask.py::test_a_doubt_does_not_wait_until_the_logs_of_its_broker_have_been_read",
        (
            "proxy.upstream",
            "            self._ask_over(self._reading, question, partial(self._fetched, done))\n",
            "            self._ask_over(self._control, question, partial(self._fetched, done))\n",
        ),
    ),
)
