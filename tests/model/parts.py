"""Rules R6 and R10 for a batch that is stored in parts: it is too large for one message set, and goes as two, each with a marker.

A model of its own: one producer with batches a (committed already) and b (parts 1 and 2), two proxies, a Redis that can lose its last
writes, one entry. A lease is over, and nothing is under way any more, as soon as somebody else goes on (R1, R4, R6, R10: see model.py).

Safety    D  no part is twice in the log
          E  45 is never told of a batch of which a part is in the log
Progress  T  from every reachable state, without any further fault, all batches can still become acknowledged
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # R10  that a rebuild has found the first part of a batch only is known by the 'entry' | by who has rebuilt it ('memory') | None
    reopened='entry',
    # R17  the intent that is opened again belongs to 'nobody', until it is taken over | to 'who' has opened it
    reopened_for='nobody',
    # R6  parts without a marker are found by the content of 'each' part | of the 'first' one
    contents='each',
    # R13  while b lacks its rest, and its client does not bring it, what lies before it is 'answered' | 'held' back
    before='answered',
)
WORLD = dict(undo=2, a_open=False, alone=True)         # the client has no answer for a; it sends again one by one
FAULTS = dict(broken=0, reconnect=0, crash=0, loss=0, unmark=0)

# a, b: N new, F under way, R to send again, A acknowledged, X told 45. conn: the client's proxy. cid: its connection. flows: per proxy None or
# (pc, part, cid). log: parts with (number, has a marker). pend: (part, proxy or -1). entry: parts known (0 to 2), rebuilt, owner of the
# open intent (None: no intent, -1: nobody), suspect. knows: who has rebuilt it. undo: entries before the last writes
State = namedtuple('State', 'a b conn cid flows log pend entry knows undo unmarked bud')
Entry = namedtuple('Entry', 'parts rebuilt owner suspect')


class Parts(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        return State('A' if not self.a_open else 'R', 'N', 0, 0, (None, None), (), (), Entry(0, False, None, False), (False, False), (), False,
                     self.budget())

    def steps(self, s):
        for x, name in ((s.a, 'a'), (s.b, 'b')):
            if x in 'NR' and not (name == 'b' and (s.a in 'NR' or (s.a == 'F' and (self.alone and x == 'R')))):
                yield f'C sends {name} to P{s.conn}', s._replace(**{name: 'F'})
        if self.left(s, 'reconnect') and 'F' in s.a + s.b:
            for p in range(2):
                yield f'C times out, reconnects to P{p}', self.spend(self.goes(s, p), 'reconnect')
        for p in range(2):
            yield from self.proxy(s, p)
            if self.left(s, 'crash') and (s.flows[p] or s.entry.owner == p):
                yield f'P{p} CRASHES, its client goes on at the other', self.spend(self.ends(s, p), 'crash')
        for i, (part, p) in enumerate(s.pend):
            rest = s._replace(pend=s.pend[:i] + s.pend[i + 1:])
            t = rest._replace(log=s.log + ((part, not s.unmarked),))
            if p < 0:
                yield f'BROKER drops part {part} of a broken connection', rest
            else:
                t = t._replace(flows=put(s.flows, p, ('done', part, s.flows[p][2])))
            yield f'BROKER appends part {part} at {len(s.log)}' + (' without its marker' if s.unmarked else ''), t
        if self.left(s, 'unmark') and s.log and not s.unmarked:
            yield 'the topic keeps no markers any more', self.spend(s._replace(unmarked=True), 'unmark')
        if self.left(s, 'loss'):
            for n in range(1, len(s.undo) + 1):
                t = s._replace(entry=s.undo[-n]._replace(suspect=True), undo=(), knows=(False, False))
                for p in range(2):
                    if s.flows[p]:
                        t = self.void(t, p)
                yield f'REDIS loses its last {n} write(s)', self.spend(t, 'loss')

    # ------------------------------------------------------------------ small helpers
    def goes(self, s, p):
        return s._replace(conn=p, cid=s.cid + 1, a=s.a.replace('F', 'R'), b=s.b.replace('F', 'R'))

    def ends(self, s, p):
        entry = s.entry._replace(owner=-1) if s.entry.owner == p else s.entry
        s = s._replace(entry=entry, knows=put(s.knows, p, False))
        s = self.void(s, p) if s.flows[p] else s
        return self.goes(s, 1 - p) if s.conn == p else s

    def void(self, s, p):
        """Its flow ends, what it has sent may still be appended."""
        s = s._replace(pend=tuple((n, -1 if o == p else o) for n, o in s.pend))
        return self.told(s._replace(flows=put(s.flows, p, None)), s.flows[p], 'R')

    def told(self, s, flow, x):
        return s._replace(b=x) if flow[2] == s.cid and s.b == 'F' else s

    def write(self, s, **kw):
        undo = (s.undo + (s.entry,))[-self.undo:] if self.left(s, 'loss') else ()
        return s._replace(entry=s.entry._replace(**kw), undo=undo)

    def flow(self, s, p, *flow):
        return s._replace(flows=put(s.flows, p, flow or None))

    def found(self, s, known):
        """The parts that a search finds, from the first on. known: it knows the contents."""
        there = {n for n, marked in s.log if marked or n == 1 or (known and self.contents == 'each')}
        return 2 if there >= {1, 2} else 1 if 1 in there else 0

    # ------------------------------------------------------------------ proxy
    def proxy(self, s, p):
        if s.flows[p]:
            yield from self.work(s, p, s.flows[p])
            return
        here = [x for x, name in ((s.a, 'a'), (s.b, 'b')) if x == 'F' and s.conn == p]
        if not here or s.pend:                                  # nobody waits; or the broker is not yet seen to be idle
            return
        e = s.entry
        if e.suspect:
            parts = self.found(s, False)
            yield (f'P{p} rebuilds the entry: {parts} of 2 parts',
                   self.write(s, parts=parts, rebuilt=parts > 0, owner=None, suspect=False)._replace(knows=put((False, False), p, True)))
        elif e.owner is not None:
            if e.owner in (-1, p):
                yield from self.take_over(s, p)
        elif s.a == 'F' and s.b == 'F' and e.parts == 0:        # what continues the sequence is taken first, wherever it stands
            yield f'P{p} reserves b', self.flow(self.write(s, owner=p), p, 'send', 1, s.cid)
        elif s.a == 'F':
            yield f'P{p} a is a duplicate', s._replace(a='A')
        elif e.parts == 2:
            yield f'P{p} b is a duplicate', s._replace(b='A')
        elif e.parts == 0:
            yield f'P{p} reserves b', self.flow(self.write(s, owner=p), p, 'send', 1, s.cid)
        elif (self.reopened == 'entry' and e.rebuilt) or (self.reopened == 'memory' and s.knows[p]):
            yield f'P{p} opens the intent of b again', self.write(s, parts=0, rebuilt=False, owner=p if self.reopened_for == 'who' else -1)
        else:
            yield f'P{p} finds that b overlaps: 45', s._replace(b='X')

    def take_over(self, s, p):
        n = self.found(s, s.b == 'F')
        if n == 2:
            yield f'P{p} finds all of b: commits', self.write(s, parts=2, owner=None)
        elif n == 0:
            yield f'P{p} finds nothing of b: drops the intent', self.write(s, owner=None)
        elif s.b == 'F':
            yield f'P{p} finds part 1 of b: goes on', self.flow(self.write(s, owner=p), p, 'send', 2, s.cid)
        elif self.before == 'answered':
            yield f'P{p} finds part 1 of b, which nobody brings: answers a', s._replace(a='A')
        else:
            yield f'P{p} finds part 1 of b, which nobody brings: holds a back', s._replace(a='R')

    def work(self, s, p, flow):
        pc, part, cid = flow
        if s.entry.owner != p:
            yield f'P{p} lost the intent', self.void(s, p)
        elif pc == 'send':
            if cid != s.cid:                                    # R17
                owner = None if part == 1 else -1
                yield f'P{p} does not forward, its client has gone', self.flow(self.write(s, owner=owner), p)
                return
            yield f'P{p} forwards part {part}', self.flow(s._replace(pend=s.pend + ((part, p),)), p, 'wait', part, cid)
        elif pc == 'doubt':
            if s.pend:
                return
            n = self.found(s, True)
            if n == 2:
                yield f'P{p} finds all of b', self.told(self.flow(self.write(s, parts=2, owner=None), p), flow, 'A')
            else:
                yield f'P{p} finds {n} of 2 parts: sends part {n + 1}', self.flow(s, p, 'send', n + 1, cid)
        elif pc == 'done' and part == 1:
            yield f'P{p} has the answer for part 1', self.flow(s, p, 'send', 2, cid)
        elif pc == 'done':
            yield f'P{p} has the answer for part 2: commits', self.told(self.flow(self.write(s, parts=2, owner=None), p), flow, 'A')
        if pc in ('wait', 'done') and self.left(s, 'broken'):
            t = s._replace(pend=tuple((n, -1 if o == p else o) for n, o in s.pend))
            yield f'P{p} upstream connection breaks, part {part} in doubt', self.spend(self.flow(t, p, 'doubt', part, cid), 'broken')

    # ------------------------------------------------------------------ searches
    def verdict(self, s):
        if len({n for n, _ in s.log}) < len(s.log):
            return 'D PART TWICE IN THE LOG'
        return 'E TOLD 45 FOR A BATCH OF WHICH A PART IS STORED' if s.b == 'X' and s.log else None

    def is_done(self, s):
        return s.a == 'A' and s.b in 'AX'

    def show(self, s):
        return f'==> log={s.log} client={s.a}{s.b} entry={s.entry}'
