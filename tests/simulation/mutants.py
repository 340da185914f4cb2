"""Rules taken out of the shipped source, one at a time: each line here is one that keeps a promise."""

from __future__ import annotations

from dataclasses import dataclass

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
class Mutant:
    """``rule``: what is missing. ``deaths``: the beginnings of complaints that are the right reason to die."""

    name: str
    rule: str
    patches: tuple[Patch, ...]
    deaths: tuple[str, ...]


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
                "        result = await self._search(intent, intent.content)\n",
                "        result = None\n",
            ),
        ),
        ("I1",),
    ),
)
