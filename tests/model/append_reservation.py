"""An append reservation instead of one reserve per batch, with everything that the core has become since lines l1 to
l11: a proxy instance says once in Redis that it may append for a producer, and from where on; commits are kept in
memory and written now and then.

The value of an entry with an append reservation has an intent that is `whole`: its owner may have appended anything
after its bound, so a takeover rebuilds the entry from the log. As the owner makes no swap for a batch, nothing that
others write stops it: it ends its append reservation itself, by the swap that writes what it knows (handed over), or by
the one that makes a plain intent of a batch in doubt (`settled_on`). After that flow.py and resolver.py handle the
batch, so unknown outcomes, parts, refusals and unrecoverable batches are the same as without an append reservation.

member of a proxy: for each producer None, or the value that it has sent to hand over, and whether that was executed.
"""
from model import Model
from state import put

RULES = dict(
    # a batch of an entry without an append reservation takes one 'always' | that, or a plain intent, as a flow of its
    # own does ('any')
    takes='always',
    # nothing is forwarded before the swap that takes the append reservation is 'confirmed' | it is 'sent'
    own_after='confirmed',
    # a batch that is not acknowledged: its append reservation becomes a plain 'intent' first | it is looked for and
    # sent again under the append reservation ('memory')
    doubt='intent',
    # an earlier proxy instance's flow takes the intent away under which it had appended before: False | True
    flow_releases=False,
    # commits are written at times, and move the bound to the end of the producer's last 'commit' | to the 'known' high watermark; None never
    flush='commit',
    # the owner hands over when its client has 'gone', when another proxy has 'asked', when it is 'idle'
    hands_over=('gone', 'asked'),
    # it hands over when nothing of the producer is in flight: True | False at once
    waits_in_flight=True,
    # from when the hand-over is 'sent' nothing begins under it | 'confirmed'; it is sent until it is confirmed: True | False
    ends_at='sent', repeats=True,
    # another proxy asks for it by a swap that changes nothing but the version: 'asks' | 'waits'
    contender='asks',
    # a newer epoch at another proxy waits until the owner has handed over: 'waits' | it begins 'at once', as a swap per batch would allow
    newer_epoch='waits',
    # a takeover reads 'all' batch markers after the bound | only the batch that it was taken with ('asked')
    taken='all',
    # an unrecoverable batch is remembered: such an entry is reserved batch by batch
    over_given_up=False,
)


class Owned(Model):
    plainly = False

    def __init__(self, **changes):
        rules = {k: changes.pop(k, v) for k, v in RULES.items()}
        super().__init__(ownership=True, hand_over=False, **changes)
        for k, v in rules.items():
            setattr(self, k, v)

    def first(self):
        s = super().first()
        return s._replace(pr=tuple(x._replace(member=(None,) * self.producers) for x in s.pr))

    def steps(self, s):
        for label, t in super().steps(s):
            for p, x in enumerate(t.pr):
                if x.inc != s.pr[p].inc:                   # what it had sent belongs to a proxy instance that has ended
                    t = self.setp(t, p, member=(None,) * self.producers)
            yield label, t

    # ------------------------------------------------------------------ append reservations
    def is_owner(self, s, p, q):
        """Does Redis name this proxy as the owner?"""
        it = s.ent[q].intent
        return it is not None and it.whole and not it.lost and (it.p, it.inc) == (p, s.pr[p].inc)

    def takes_ownership(self, s, e):
        return not self.plainly and (self.over_given_up or e.intent is None or not e.intent.lost)

    def do_reserve(self, s, p, r, e, w, how=''):
        if s.pr[p].member[r.q] and self.ends_at == 'sent':
            return                                              # it has to be confirmed first
        steps = []
        for self.plainly in (False, True) if self.takes == 'any' and s.pr[p].mem[r.q] is None else (False,):
            steps += super().do_reserve(s, p, r, e, w, how + ' alone' * self.plainly)
        self.plainly = False
        for label, t in steps:
            yield label, t
            if label.endswith('the command is late') and self.own_after == 'sent':
                x = t.pr[p]
                t = self.setp(t, p, w=x.w._replace(pc='fwd', out=None), mem=put(x.mem, r.q, e._replace(intent=None)))
                yield label + ', goes on', t

    def resolve(self, s, p, q, claim):
        if self.taken == 'asked' and claim.bs:
            claim = claim._replace(whole=False)
        return super().resolve(s, p, q, claim)

    # ------------------------------------------------------------------ who wants it
    def decide(self, s, p, r):
        q, e = r.q, s.ent[r.q]
        it = e.intent
        if (s.pr[p].mem[q] is None and it is not None and it.whole and it.p != p and self.lives(s, it)
                and not self.suspect(s, q) and not self.gone(s, p, q, r.cid) and r.gen == s.gen):
            if self.newer_epoch == 'at once' and r.ep > e.ep and r.seq == 0:
                yield from self.do_reserve(s, p, r, e._replace(intent=None), None, ' over the ownership')
            if self.contender == 'asks' and not it.asked:
                yield f'P{p} asks P{it.p} for C{q}', self.swap(s, p, q, intent=it._replace(asked=True))
        yield from super().decide(s, p, r)

    def proxy(self, s, p):
        yield from super().proxy(s, p)
        x = s.pr[p]
        for q, m in enumerate(x.mem):
            if m is None or m.egen != s.gen or x.reg == 'away':
                continue
            for label, t in self.keeps(s, p, q, m):
                if x.reg != 'lost' or t.ent == s.ent:                              # R2: else its swap is refused
                    yield label, t

    def keeps(self, s, p, q, m):
        """What an owner does apart from appending."""
        x = s.pr[p]
        sent = x.member[q]
        it = s.ent[q].intent if self.is_owner(s, p, q) else None
        if sent:
            yield from self.is_handing_over(s, p, q, sent)
            return
        if it is None:
            w = x.w and x.w._replace(valid=False) if x.w and any(t.q == q for t in x.w.parts) else x.w
            yield f'P{p} learns that C{q} is not its own any more', self.setp(s, p, mem=put(x.mem, q, None), w=w)
            return
        if self.flush and not it.asked:
            value = self.flushed(s, m, it)
            if value != s.ent[q]:
                yield f'P{p} writes what it knows of C{q}', self.write(s, p, q, value)
        flies = x.w is not None and any(t.q == q for t in x.w.parts)
        client = s.cl[q]
        has_gone = client.conn != p and (self.close_seen == 'now' or x.known[q] >= client.cid)
        is_idle = not x.w and not any(r.q == q for r in x.inbox)
        holds = dict(gone=has_gone, asked=it.asked, idle=is_idle)
        why = next((reason for reason in self.hands_over if holds[reason]), None)
        if why is None or (flies and self.waits_in_flight):
            return
        value = m._replace(intent=None)
        yield f'P{p} hands over C{q} ({why})', self.setp(self.write(s, p, q, value), p, mem=put(x.mem, q, None))
        if self.left(s, 'slow'):
            late = self.spend(self.setp(s, p, member=put(x.member, q, (value, False))), 'slow')
            if not self.repeats:
                late = self.setp(late, p, member=x.member, mem=put(x.mem, q, None))
            yield f'P{p} hands over C{q} ({why}); the command is late', late

    def is_handing_over(self, s, p, q, sent):
        value, is_executed = sent
        x = s.pr[p]
        over = dict(member=put(x.member, q, None), mem=put(x.mem, q, None))
        if is_executed:
            yield f'P{p} has the reply: C{q} is handed over', self.setp(s, p, **over)
            return
        t = self.write(s, p, q, value) if self.is_owner(s, p, q) else s
        if self.ends_at == 'sent':
            yield f'REDIS executes the hand-over of C{q}', self.setp(t, p, **over)
        else:
            yield f'REDIS executes the hand-over of C{q}', self.setp(t, p, member=put(x.member, q, (value, True)))

    def flushed(self, s, m, it):
        known = [b for b in ((it.lb, it.anc), m.last) if b[1]]
        if self.flush == 'known' and s.hw:
            known.append((s.hw, s.log[s.hw - 1]))
        lb, anc = max(known, key=lambda b: b[0], default=(it.lb, it.anc))
        return m._replace(intent=it._replace(lb=lb, anc=anc))

    # ------------------------------------------------------------------ a batch that does not end as usual
    def owned_part(self, s, p, w):
        return next((t for t in w.parts if t.bs and s.pr[p].mem[t.q] is not None), None) if self.doubt == 'intent' else None

    def settled_on(self, s, p, w, t):
        """One swap: what was committed, and a plain intent for what is out. It ends the append reservation."""
        x, q = s.pr[p], t.q
        m = x.mem[q]
        freed = self.setp(s, p, mem=put(x.mem, q, None), member=put(x.member, q, None))
        if not self.is_owner(s, p, q) or w.gen != s.gen:
            parts = tuple(y for y in w.parts if y != t)
            s2 = self.setp(self.answer_part(freed, t, 'err'), p, w=w._replace(parts=parts) if parts else None)
            yield f'P{p} has lost its ownership of C{q}: retriable error', s2
            return
        it = s.ent[q].intent
        value = self.flushed(s, m, it)
        it = value.intent
        if self.epoch_at == 'reserve' and t.ep > m.ep:
            value = value._replace(ep=t.ep, next=0, win=(), first=-1)
        plain = it._replace(ep=t.ep, lo=t.lo, bs=t.bs, whole=False, asked=False)
        yield f'P{p} writes a plain intent for {self.parts_name(w)}', self.write(freed, p, q, value._replace(intent=plain))

    def at_settle(self, s, p, w):
        t = self.owned_part(s, p, w)
        yield from self.settled_on(s, p, w, t) if t else super().at_settle(s, p, w)

    def at_split(self, s, p, w):
        t = self.owned_part(s, p, w)
        yield from self.settled_on(s, p, w, t) if t else super().at_split(s, p, w)

    def freed(self, s, p, w, t):
        it = s.ent[t.q].intent
        if it is not None and it.whole and t.bs and w.inc != s.pr[p].inc and not self.flow_releases:
            return s
        return super().freed(s, p, w, t)
