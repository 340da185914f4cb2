"""A flow that has reserved: forwarded, answered, or ended without a commit (R2, R4, R5, R17; section 7 of the design).

Each at_<pc> is one state of a flow; what is in doubt continues in resolver.py.
"""
from state import RENEWED, Rec


class FlowPart:

    # ------------------------------------------------------------------ exits without a commit
    def leave(self, s, p, w, kind):
        """R2: a flow that ends without a commit releases what it reserved (kind: the answer)."""
        if self.release == 'never' or not self.reserve:
            for t in w.parts:
                s = self.answer_part(s, t, kind)
            return self.setp(s, p, w=None)
        if self.answer_before_release:
            for t in w.parts:
                s = self.answer_part(s, t, kind)
            w = w._replace(parts=tuple(t._replace(cids=(-1,) * len(t.bs)) for t in w.parts))
        return self.setp(s, p, w=w._replace(pc='release', x=None, out=kind))

    def freed(self, s, p, w, t):
        """The swap of a release: takes the intent away if it is ours, and raises the version in any case (`fence`)."""
        if self.ownership and s.pr[p].mem[t.q]:
            return s
        if self.mine(s, p, w, t):
            return self.swap(s, p, t.q, intent=None)
        return self.outdated(s, t.q) if self.fence else s

    def drop_first(self, s, p, w):
        parts = w.parts[1:]
        return self.setp(s, p, w=w._replace(parts=parts, unacked=False) if parts else None)

    def at_release(self, s, p, w):
        t = w.parts[0]
        s2 = self.acknowledged(self.drop_first(self.answer_part(self.freed(s, p, w, t), t, w.out), p, w), p)
        yield f'P{p} releases {self.parts_name(w)}, answers "{w.out}"', s2
        if self.left(s, 'slow') and self.release == 'retry' and self.freed(s, p, w, t) != s:
            s2 = self.write(s, p, t.q, self.freed(s, p, w, t).ent[t.q], acked=False)
            yield (f'P{p} releases {self.parts_name(w)}; executed, but the reply is lost: repeats it',
                   self.spend(self.setp(s2, p, w=w._replace(unacked=True)), 'slow'))
        if self.left(s, 'slow') and self.release == 'once':
            yield (f'P{p} releases {self.parts_name(w)}; command lost, not repeated',
                   self.spend(self.drop_first(self.answer_part(s, t, w.out), p, w), 'slow'))

    # ------------------------------------------------------------------ forward
    def at_fwd(self, s, p, w):
        all_there = [not self.gone(s, p, t.q, cid) for t in w.parts for cid in t.cids]
        for i, t in enumerate(w.parts):
            there = [not self.gone(s, p, t.q, cid) for cid in t.cids]
            ok = any(all_there) if self.client_there == 'wrapper' else any(there) if self.client_there == 'any' else all(there)
            if not ok and not (self.client_there == 'first' and t.at == RENEWED):         # R17
                s2 = self.freed(s, p, w, t) if self.release != 'never' else s
                parts = w.parts[:i] + w.parts[i + 1:]
                s2 = self.setp(s2, p, w=w._replace(parts=parts) if parts else None)
                how = '' if self.release == 'never' else ', releases'
                yield f'P{p} does not forward, a client has gone{how}', self.requeue(s2, p, self.requests(t, w.gen))
                return
        if w.valid or self.left(s, 'late'):                                              # R4
            wrapper = tuple(Rec(t.q, t.ep, (t.lo + i) % self.modulus, b, self.client_kind == 'resend' and t.cids[i] != s.cl[t.q].cid)
                            for t in w.parts for i, b in enumerate(t.bs))
            s2 = self.setp(s, p, w=w._replace(pc='wait', x=None))
            s2 = s2._replace(pend=tuple(sorted(s2.pend + ((wrapper, p),))))
            if w.valid:
                yield f'P{p} forwards {self.names(wrapper)}', s2
            else:
                yield f'P{p} forwards {self.names(wrapper)} AFTER ITS DEADLINE', self.spend(s2, 'late')
        if not w.valid:
            yield f'P{p} deadline passed, does not forward', self.leave(s, p, w, 'err')

    def at_wait(self, s, p, w):
        if w.x is None or s.hw <= w.x:
            return
        parts = tuple(t._replace(at=w.x) for t in w.parts)
        s2 = s
        if self.answer_first:                                                            # R7
            for t in parts:
                s2 = self.answer_part(s2, t, 'ack', True)
        checkpoint = s.pr[p].checkpoint
        if self.lower in ('own', 'known', 'known LEO') and self.anchors:
            checkpoint = max(s.pr[p].checkpoint, (w.x + 1, s.log[w.x]), key=lambda m: m[0])
        yield (f'P{p} has the broker\'s answer for {self.parts_name(w)}: {w.x}',
               self.setp(s2, p, w=w._replace(pc='finish', parts=parts), checkpoint=checkpoint))

    def at_hw(self, s, p, w):
        """R5: an error code came with a base offset."""
        if len(s.log) <= w.x:
            if self.watch_truncation:
                yield f'P{p} sees a log shorter than offset {w.x}: in doubt', self.setp(s, p, w=w._replace(pc='settle', x=None))
            return
        if s.hw <= w.x:
            return
        compared = w.parts if self.compare == 'each' else w.parts[:1]
        same = w.x not in s.veil and all(any(self.is_it(r, t.q, t.ep, t.lo, t.bs[0]) for r in s.log[w.x]) for t in compared)
        if self.error_with_offset == 'hw' or same:
            yield (f'P{p} sees HW beyond {w.x}' + ('' if self.error_with_offset == 'hw' else ' and its marker there'),
                   self.setp(s, p, w=w._replace(pc='finish', parts=tuple(t._replace(at=w.x) for t in w.parts))))
        else:
            yield f'P{p} finds another record at {w.x}: in doubt', self.setp(s, p, w=w._replace(pc='settle', x=None))

    def at_split(self, s, p, w):
        """Section 7: one producer's bad record must not fail another's, nor a good batch next to it."""
        if self.split and len(w.parts) > 1:
            t = w.parts[-1]
            s2 = self.setp(self.freed(s, p, w, t), p, w=w._replace(parts=w.parts[:-1], pc='fwd', x=None))
            yield f'P{p} takes C{t.q} out of the append', self.requeue(s2, p, self.requests(t, w.gen))
        elif self.split and len(w.parts[0].bs) > 1:
            t = w.parts[0]
            one = t._replace(bs=t.bs[:1], cids=t.cids[:1])
            s2 = s
            if self.mine(s, p, w, t) and not self.ownership:
                s2 = self.swap(s, p, t.q, intent=s.ent[t.q].intent._replace(bs=one.bs))
            if self.mine(s, p, w, t):
                s2 = self.setp(s2, p, w=w._replace(pc='fwd', parts=(one,), x=None))
                yield f'P{p} tries b{t.bs[0]} alone', self.requeue(s2, p, self.requests(t, w.gen)[1:])
            else:
                yield f'P{p} lost the intent', self.leave(s, p, w, 'err')
        else:
            yield f'P{p} fails {self.parts_name(w)}', self.leave(s, p, w, 'content')
