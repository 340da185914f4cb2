"""R10: checkpoints of time and high watermark, so that a rebuild need not read the log from its start.

A checkpoint is an end of the log, the record below it, and what its age is measured by: the batches that were sent and
not done with when it was made. The model has no clock: a checkpoint is older than any retry when all of these are done
with at their clients. What is sent again after that was sent for the first time after the checkpoint, and so lies after
it in the log, if at all. A rebuild reads from the checkpoint first; what that does not decide is read from the
takeover's own bound.
"""
from state import Checkpoint


class MarksPart:

    def in_life(self, s):
        return tuple((q, b) for q, c in enumerate(s.cl) for b, x in enumerate(c.st) if x in 'FR')

    def notes_checkpoint(self, s, p):
        """The high watermark at some time. One checkpoint is kept by each proxy; it outlives the process."""
        checkpoint = s.pr[p].dated
        if s.hw and self.left(s, 'checkpoint'):
            new = Checkpoint(s.hw, s.log[s.hw - 1], self.in_life(s), 0)
            yield f'P{p} notes the high watermark {s.hw} and the time', self.spend(self.setp(s, p, dated=new), 'checkpoint')
        if checkpoint and checkpoint.age < self.checkpoint_age - 1 and self.is_over(s, checkpoint):
            yield f'P{p}: time passes', self.setp(s, p, dated=checkpoint._replace(in_life=self.in_life(s), age=checkpoint.age + 1))

    def is_over(self, s, checkpoint):
        return not set(checkpoint.in_life) & set(self.in_life(s))

    def is_old(self, s, checkpoint):
        return not self.checkpoint_age or (checkpoint.age == self.checkpoint_age - 1 and self.is_over(s, checkpoint))

    def checkpoint_start(self, s, checkpoint):
        """Where a search from the checkpoint begins, or -1: its record is not there any more."""
        if checkpoint.end > len(s.log) or (self.checkpoint_anchor and s.log[checkpoint.end - 1] != checkpoint.anc):
            return -1
        return checkpoint.end

    def rebuilt_by_checkpoint(self, s, p, q, e, it, upto):
        """The entry by what the log has after the checkpoint; None: that does not decide."""
        checkpoint, upto = s.pr[p].dated, min(upto, len(s.log))
        if not checkpoint or e.egen == s.gen or not self.is_old(s, checkpoint):
            return None
        start = self.checkpoint_start(s, checkpoint)
        if start <= self.start(s, it.lb, it.anc) or any(start <= o < upto for o in s.veil):
            return None
        waiting = [r for r in s.pr[p].inbox if r.q == q and r.gen == s.gen and not self.gone(s, p, q, r.cid)]
        pieces = [r for o in range(start, upto) for r in s.log[o] if r[0] == q]
        lowest = max(waiting, key=lambda r: (r.ep, -r.seq), default=None)
        if not self.is_enough(e, pieces, lowest):
            return None
        e2 = self.rebuilt(s, e, q, start, s.log[start - 1], upto)
        if e2.first >= 0 and (e2.ep != e.ep or e.first < 0) and (e2.ep, 0) not in [(r.ep, r.seq) for r in pieces]:
            e2 = e2._replace(first=0)                           # anywhere before the checkpoint
        if not pieces and self.checkpoint_decides == 'any':
            e2 = e2._replace(ep=lowest.ep, next=lowest.seq)
        return e2

    def is_enough(self, e, pieces, lowest):
        """No client retries what is older than the checkpoint: the batch that waits first is among the pieces, or not in the log."""
        if lowest is None:
            return bool(pieces)
        if max([r.ep for r in pieces], default=-1) < lowest.ep:
            due = e.next if e.ep == lowest.ep else 0
            return self.checkpoint_decides != 'careful' or (e.ep <= lowest.ep and lowest.seq == due)
        of_epoch = [r.seq for r in pieces if r.ep == lowest.ep]
        return not of_epoch or not self.behind(lowest.seq, of_epoch[0])
