"""Rules R2, R6, R9, R10 and R11 for a batch that is stored in parts: it is too large for one message set, and goes as several.

A model of its own: one producer with batches a (committed already) and b, which goes in parts, two proxies, a Redis that can lose its
last writes, one entry. Each part is reserved, appended and committed like a batch of its own; the reserve of the next one is the swap that
commits the one before. Somebody may begin the sequences of the epoch again, with a batch o that has the same first
sequence as b and another size. A lease is over, and nothing is under way any more, as soon as another proxy continues
(R1, R4, R6, R10: see model.py).

An unclean election loses the end of the log, while nothing is under way: no proxy can see a loss during its append.

Safety    D  no part is twice in the log
          E  `OUT_OF_ORDER_SEQUENCE_NUMBER` is never the answer for a batch of which a part is in the log, nor unless
             the log has another batch's part under its sequences
          F  a batch that was acknowledged is in the log, all of it
Progress  T  from every reachable state, without any further fault, all batches can still become acknowledged, or get
             `OUT_OF_ORDER_SEQUENCE_NUMBER` or `INVALID_RECORD`
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # R2  the intent covers what is left of the batch, and is reserved for 'each' part | 'once', and gone with the first
    #     commit | `'owned'`: an append reservation, which names no content, over all parts (`append_reservation.py`)
    reserves='each',
    # R6  less than an intent covers is in the log: what is there is 'committed' | the intent is 'dropped'
    prefix='committed',
    # R9  a batch that is stored up to its middle continues if what is stored has its 'content' | by 'numbers' alone |
    #     None: it overlaps, `OUT_OF_ORDER_SEQUENCE_NUMBER`
    goes_on='content',
    # R6  a part without a marker is found by its 'own' content | by that of the 'first' one, which the first intent was reserved with
    content='own',
    # R10  a rebuild looks for the content of the part that is 'due' | for that of the 'first' one
    rebuild='due',
    # R9, R11  a batch of which the brokers have lost parts gets `INVALID_RECORD` (`'told'`) | 'overlaps',
    #          `OUT_OF_ORDER_SEQUENCE_NUMBER`, if they have lost some | if they have lost 'all' | is a 'duplicate' if
    #          the entry has all
    part_lost='told',
)
WORLD = dict(parts=2, undo=2, a_open=False)            # a_open: the client has no answer for a
FAULTS = dict(broken=0, reconnect=0, crash=0, loss=0, unmark=0, anew=0, unclean=0)

# a, b: N new, F under way, R to send again, A acknowledged, X got `OUT_OF_ORDER_SEQUENCE_NUMBER`, L got
# `INVALID_RECORD`. who: which batch is b: 'b', or 'o' of a client that begins the sequences again. conn: the client's
# proxy. cid: its connection. flows: per proxy None or (pc, who, part, cid). log: (who, part, has a marker). pend: (who,
# part, proxy or -1). undo: entries before the last writes
State = namedtuple('State', 'a b who conn cid flows log pend entry undo unmarked bud')
# next: parts that are stored. intent: None or (owner, who); owner -1: nobody
Entry = namedtuple('Entry', 'next intent suspect')


class Parts(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        return State('R' if self.a_open else 'A', 'N', 'b', 0, 0, (None, None), (), (), Entry(0, None, False), (), False, self.budget())

    def steps(self, s):
        if s.a in 'NR':
            yield f'C sends a to P{s.conn}', s._replace(a='F')
        elif s.b in 'NR' and (s.a == 'A' or s.b == 'N'):
            yield f'C sends {s.who} to P{s.conn}', s._replace(b='F')
        if self.left(s, 'reconnect') and 'F' in s.a + s.b:
            for p in range(2):
                yield f'C times out, reconnects to P{p}', self.spend(self.goes(s, p), 'reconnect')
        if self.left(s, 'anew') and s.who == 'b' and s.b in 'FR' and s.a == 'A':
            for p in range(2):
                yield f'C forgets b and begins its sequences anew at P{p}', self.spend(self.goes(s, p)._replace(who='o', b='N'), 'anew')
        for p in range(2):
            yield from self.proxy(s, p)
            if self.left(s, 'crash') and (s.flows[p] or self.owner(s) == p):
                yield f'P{p} CRASHES, its client goes on at the other', self.spend(self.ends(s, p), 'crash')
        for i, (who, part, p) in enumerate(s.pend):
            rest = s._replace(pend=s.pend[:i] + s.pend[i + 1:])
            t = rest._replace(log=s.log + ((who, part, not s.unmarked),))
            if p < 0:
                yield f'BROKER drops {who}{part} of a broken connection', rest
            else:
                t = t._replace(flows=put(s.flows, p, ('done', *s.flows[p][1:])))
            yield f'BROKER appends {who}{part} at {len(s.log)}' + (' without its marker' if s.unmarked else ''), t
        if self.left(s, 'unmark') and s.log and not s.unmarked:
            yield 'the topic keeps no markers any more', self.spend(s._replace(unmarked=True), 'unmark')
        if self.left(s, 'unclean') and s.b in 'FR' and not s.pend and s.flows == (None, None):
            for n in range(1, len(s.log) + 1):
                yield f'an UNCLEAN election, the last {n} part(s) are gone', self.spend(s._replace(log=s.log[:-n]), 'unclean')
        if self.left(s, 'loss'):
            for n in range(1, len(s.undo) + 1):
                t = s._replace(entry=s.undo[-n]._replace(suspect=True), undo=())
                for p in range(2):
                    if s.flows[p]:
                        t = self.void(t, p)
                yield f'REDIS loses its last {n} write(s)', self.spend(t, 'loss')

    # ------------------------------------------------------------------ small helpers
    def owner(self, s):
        return s.entry.intent and s.entry.intent[0]

    def goes(self, s, p):
        return s._replace(conn=p, cid=s.cid + 1, a=s.a.replace('F', 'R'), b=s.b.replace('F', 'R'))

    def ends(self, s, p):
        if self.owner(s) == p:
            s = s._replace(entry=s.entry._replace(intent=(-1, s.entry.intent[1])))
        s = self.void(s, p) if s.flows[p] else s
        return self.goes(s, 1 - p) if s.conn == p else s

    def void(self, s, p):
        """Its flow ends, what it has sent may still be appended."""
        s = s._replace(pend=tuple((w, n, -1 if o == p else o) for w, n, o in s.pend))
        return self.told(s._replace(flows=put(s.flows, p, None)), s.flows[p], 'R')

    def told(self, s, flow, x):
        return s._replace(b=x) if flow[3] == s.cid and s.b == 'F' else s

    def write(self, s, **kw):
        undo = (s.undo + (s.entry,))[-self.undo:] if self.left(s, 'loss') else ()
        return s._replace(entry=s.entry._replace(**kw), undo=undo)

    def flow(self, s, p, *flow):
        return s._replace(flows=put(s.flows, p, flow or None))

    def stored(self, s, whose, is_looked_for):
        """The parts that a search finds in the log, from the one that is due on: by markers, or by contents of ``whose``."""
        n = s.entry.next
        while any(part == n + 1 and (marked or (who == whose and is_looked_for(part))) for who, part, marked in s.log):
            n += 1
        return n

    # ------------------------------------------------------------------ proxy
    def proxy(self, s, p):
        if s.flows[p]:
            yield from self.work(s, p, *s.flows[p])
            return
        e = s.entry
        if s.conn != p or 'F' not in s.a + s.b or s.pend:       # nobody waits; or the broker is not yet seen to be idle
            return
        if e.suspect:
            n = self.stored(s, s.who if s.b == 'F' else None, lambda part: part == 1 or self.rebuild == 'due')
            yield f'P{p} rebuilds the entry: {n} part(s)', self.write(s, next=n, intent=None, suspect=False)
        elif e.intent is not None:
            if e.intent[0] in (-1, p):
                n = self.stored(s, e.intent[1], lambda part: self.reserves != 'owned' and (part == 1 or (self.content == 'own' and part == e.next + 1)))
                if self.prefix == 'dropped' and n < self.parts:
                    n = e.next
                yield f'P{p} takes the intent over: {n} part(s) are stored', self.write(s, next=n, intent=None)
        elif s.a == 'F':
            yield f'P{p} a is a duplicate', s._replace(a='A')
        elif e.next == self.parts and s.who == 'b' and ('b', 1) not in {one[:2] for one in s.log}:
            yield f'P{p} b has vanished: 87', s._replace(b='L')
        elif self.lacks_some(s) and self.part_lost != ('duplicate' if e.next == self.parts else 'overlaps'):
            yield f'P{p} finds that the log has lost a part of {s.who}: 87', s._replace(b='L')
        elif self.lacks_all(s) and self.part_lost != 'all':
            yield f'P{p} finds that the log has lost what it had of {s.who}: 87', s._replace(b='L')
        elif e.next == self.parts and s.who == 'b':
            yield f'P{p} b is a duplicate', s._replace(b='A')
        elif e.next == 0 or self.may_go_on(s):
            if e.next == self.parts:
                yield f'P{p} all of {s.who} is stored', s._replace(b='A')
            else:
                yield f'P{p} reserves {s.who} from part {e.next + 1} on', self.flow(self.write(s, intent=(p, s.who)), p, 'send', s.who, e.next + 1, s.cid)
        else:
            yield f'P{p} finds that {s.who} overlaps: 45', s._replace(b='X')

    def may_go_on(self, s):
        """Are the stored parts those of the batch that waits?"""
        if self.goes_on == 'content':
            return {(s.who, part) for part in range(1, s.entry.next + 1)} <= {(who, part) for who, part, _ in s.log}
        return self.goes_on == 'numbers'

    def lacks_some(self, s):
        """Are some of the parts that the entry has in the log, with the content of the batch that waits, and others not?"""
        own = {(s.who, part) for part in range(1, s.entry.next + 1)}
        return bool(own & {one[:2] for one in s.log}) and not own <= {one[:2] for one in s.log}

    def lacks_all(self, s):
        """Does the entry have parts, and the log nothing under their numbers, of whomever?"""
        return s.entry.next > 0 and all(part > s.entry.next for _, part, _ in s.log)

    def work(self, s, p, pc, who, part, cid):
        flow = pc, who, part, cid
        if self.owner(s) != p and not (self.reserves == 'once' and s.entry.intent is None and part > 1):
            yield f'P{p} lost the intent', self.void(s, p)
        elif pc == 'send' and cid != s.cid:                     # R17
            stored = part - 1 if self.reserves == 'owned' else s.entry.next
            yield f'P{p} does not forward, its client has gone', self.flow(self.write(s, next=stored, intent=None), p)
        elif pc == 'send':
            yield f'P{p} forwards {who}{part}', self.flow(s._replace(pend=s.pend + ((who, part, p),)), p, 'wait', who, part, cid)
        elif pc == 'doubt':
            if s.pend:
                return
            if (who, part) in {one[:2] for one in s.log}:
                yield f'P{p} finds {who}{part}', self.flow(s, p, 'done', who, part, cid)
            else:
                yield f'P{p} does not find {who}{part}: sends it again', self.flow(s, p, 'send', who, part, cid)
        elif pc == 'done' and part == self.parts:
            yield f'P{p} commits the last part', self.told(self.flow(self.write(s, next=part, intent=None), p), flow, 'A')
        elif pc == 'done' and self.reserves == 'owned':
            yield f'P{p} knows of {who}{part}, goes on', self.flow(s, p, 'send', who, part + 1, cid)
        elif pc == 'done':
            intent = (p, who) if self.reserves == 'each' else None
            yield f'P{p} commits {who}{part}, reserves the rest', self.flow(self.write(s, next=part, intent=intent), p, 'send', who, part + 1, cid)
        if pc == 'wait' and self.left(s, 'broken'):
            t = s._replace(pend=tuple((w, n, -1 if o == p else o) for w, n, o in s.pend))
            yield f'P{p} upstream connection breaks, {who}{part} in doubt', self.spend(self.flow(t, p, 'doubt', who, part, cid), 'broken')

    # ------------------------------------------------------------------ searches
    def verdict(self, s):
        stored = [one[:2] for one in s.log]
        if len(set(stored)) < len(stored):
            return 'D PART TWICE IN THE LOG'
        whole = {(s.who, part) for part in range(1, self.parts + 1)}
        if s.b == 'X' and whole & set(stored):
            return 'E TOLD 45 FOR A BATCH OF WHICH A PART IS STORED'
        if s.b == 'X' and not stored:
            return 'E TOLD 45 AND NOTHING ELSE IS STORED UNDER ITS NUMBERS'
        return 'F ACKNOWLEDGED AND NOT STORED' if s.b == 'A' and not whole <= set(stored) else None

    def is_done(self, s):
        return s.a == 'A' and s.b in 'AXL'

    def show(self, s):
        return f'==> log={s.log} client={s.a}{s.b} {s.who} entry={s.entry}'
