"""Rules taken out of the shipped source, one at a time: each line here is one that keeps a promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from simulation.cases import CRASH_BEFORE, DISCONNECT_LATER, RESTART_PREFIX, Counts, all_faults, run_case

from testkit.virtual_broker_faults import BrokerFault
from testkit.virtual_mutant import Patch

_COMMIT_FIRST = """\
            if sequencer.entry is not None and sequencer.entry.intent is not None:
                reserved_entry, offset, window = sequencer.entry, sequencer.entry.intent.lower_bound, []
                for batch in self._group:
                    count = batch.identity.record_count
                    window.append(WindowBatch(batch.identity.base_sequence, count, offset))
                    offset += count
                await sequencer.write(committed(reserved_entry, window, offset, piece.anchor))
                sequencer.held.entry = reserved_entry
"""


@dataclass(frozen=True, slots=True)
class Plot:
    """Every fault of kind ``first`` with every one of kind ``second``, for each of so many seeds."""

    first: str
    second: str
    batches: int = 1
    gap: float = 0.004
    proxies: int = 2
    seeds: int = 1

    def run(self, package: str) -> Iterator[str]:
        """The complaints of all cases, in order."""
        options = {"batches": self.batches, "proxies": self.proxies}
        counts = run_case(gap=self.gap, package=package, **options).counts
        moments = all_faults(Counts(counts.effects + 2, counts.produces + 1, counts.commands + 2))
        firsts = [fault for fault in moments if fault.kind.startswith(self.first)]
        seconds = [fault for fault in moments if fault.kind.startswith(self.second)]
        for seed in range(1, self.seeds + 1):
            for pair in product(firsts, seconds):
                yield from run_case(*pair, gap=self.gap, seed=seed, package=package, **options).problems


@dataclass(frozen=True, slots=True)
class Mutant:
    """``rule``: what is missing. ``deaths``: the beginnings of complaints that are the right reason to die."""

    name: str
    rule: str
    patches: tuple[Patch, ...]
    deaths: tuple[str, ...]
    plot: Plot | None = None
    """Where a random world would need luck: the pairs of faults among which it dies."""


MUTANTS = (
    Mutant(
        "no_intent",
        "R2: the intent is written before a byte goes to the broker",
        (
            Patch(
                "proxy.sequencer",
                "        if await self.write(reserved(self.held.or_fresh(first), intent)):\n",
                "        self.held.entry = reserved(self.held.or_fresh(first), intent)\n        if True:\n",
            ),
        ),
        ("I1",),
    ),
    Mutant(
        "no_settle",
        "R6: a broker is seen awake for a second before the log is read",
        (Patch("proxy.resolver", "        self._settled = False\n", "        self._settled = True\n"),),
        ("I1",),
    ),
    Mutant(
        "scan_to_high_watermark",
        "R6: the log is read to its end, not to the high watermark",
        (Patch("proxy.resolver", "_LOG_END = -3\n", "_LOG_END = -1\n"),),
        ("I1",),
    ),
    Mutant(
        "out_of_order_in_doubt",
        "R11: never 45 for a batch in doubt",
        (
            Patch(
                "proxy.answers",
                "    return Answer(int(ErrorCode.REQUEST_TIMED_OUT), message=reason)\n",
                "    return Answer(int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), message=reason)\n",
            ),
        ),
        ("I1", "45"),
    ),
    Mutant(
        "commit_before_the_answer",
        "R7: a commit comes after the broker's answer",
        (
            Patch(
                "proxy.forward",
                "            piece = self._pieces[0]\n",
                "            piece = self._pieces[0]\n" + _COMMIT_FIRST,
            ),
        ),
        ("I3", "the user"),
    ),
    Mutant(
        "successor_out_of_order",
        "R11: a batch behind one that failed retriably is no gap",
        (Patch("proxy.sequencer", "        if behind:  # rule R11\n", "        if False:\n"),),
        ("45",),
    ),
    Mutant(
        "error_with_offset_is_a_refusal",
        "R5: a base offset means appended, whatever the code",
        (Patch("proxy.outcome", "    if base_offset >= 0:\n", "    if base_offset >= 0 and error_code == 0:\n"),),
        ("I1",),
    ),
    Mutant(
        "error_with_offset_is_a_success",
        "R5: what was appended with an error may vanish yet",
        (Patch("proxy.forward", "        if outcome.error_code == 0:\n", "        if True:\n"),),
        ("I3",),
    ),
    Mutant(
        "taken_over_unread",
        "R1: an intent that is taken over is looked for in the log",
        (
            Patch(
                "proxy.doubt",
                "        found = sum(piece.record_count for piece in pieces)\n        total",
                "        found = 0\n        total",
            ),
        ),
        ("I1",),
    ),
    Mutant(
        "living_owner_robbed",
        "R1: an intent is taken over only when its owner's lease is gone",
        (Patch("proxy.doubt", "            if alive is not False:\n", "            if False:\n"),),
        ("I1",),
        Plot(BrokerFault.SLOW.value, DISCONNECT_LATER, seeds=8),
    ),
    Mutant(
        "generation_ignored",
        "R10: an entry of an earlier generation is suspect",
        (
            Patch(
                "proxy.held_entry",
                "            return self.entry.generation != self._shared.generation\n",
                "            return False\n",
            ),
            # Nor does it notice that a value is older than what it wrote.
            Patch(
                "proxy.held_entry",
                "        if version < self._stored_version and self._is_ours():\n",
                "        if False:\n",
            ),
        ),
        ("I1",),
        Plot(BrokerFault.LOST_ANSWER.value, RESTART_PREFIX, batches=2, gap=0.2, proxies=1),
    ),
    Mutant(
        "absent_entry_trusted",
        "R10: an absent entry is suspect, unless its producer id is of this generation",
        (
            Patch(
                "proxy.held_entry",
                "        return block is None or block.generation != self._shared.generation\n",
                "        return False\n",
            ),
        ),
        ("I1",),
        Plot(CRASH_BEFORE, f"{RESTART_PREFIX}2", proxies=1),
    ),
)
