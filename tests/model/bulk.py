"""Rule R10, a writer that rebuilds many entries at once while proxies run (`idemproxy rebuild`).

A model of its own: one producer that sends its batches one after the other, so that there is never a gap; two proxies;
Redis loses everything (FLUSHALL), once or twice. A proxy does with a lost entry what the other models are about: it
takes it over, makes a quiescence check, reads the whole log, and writes what it found. The writer W takes nothing over.
It registers, waits for the leases of the lost state and for the brokers, reads the entry, reads the log, and swaps in
what the log has.

Safety    I1 DUPLICATE  a batch is in the log twice
          I3 LOSS       an acknowledged batch is not in the log
          E  a proxy returns `OUT_OF_ORDER_SEQUENCE_NUMBER`: nothing is missing
          V  LOWERED    the writer has written a sequence below the one that was stored
Progress  T  from every reachable state, without any further fault, all batches can still become acknowledged
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    grace=True,          # W waits until the leases of the lost state have run out
    settles=True,        # and until the broker has executed what was sent under them
    reads='entry',       # first the 'entry', then the log | the 'log' first
    compares=True,       # what is stored has to be what was read
    registers=True,      # the swap is refused when the data were lost after W has begun
    over_intent=False,   # W leaves an entry with an open intent alone
    raises=True,         # and writes nothing that is less than what is stored
    confirmed=True,      # what it writes counts as complete | it is unverified, its end only says where reading begins
    claims=True,         # a proxy takes an absent entry over before it reads the log | it writes only what it found,
    swaps=True,          # if still nothing is stored | whatever is stored by then
)
WORLD = dict(N=2)
FAULTS = dict(crash=0, loss=1, reconnect=2, runs=1, cut=0)   # runs: of the writer; cut: the log lost its end, unclean

# st: of each batch N new, R to send again, F under way, A acknowledged, X got `OUT_OF_ORDER_SEQUENCE_NUMBER`. conn:
# where the client is. entry: None or (version, next, intent, unverified); intent: None or (owner, batch), batch None: a
# takeover of the whole entry. lives: per proxy (proxy instance, registered, lease of a lost state). flows: per proxy
# None or (what, batch, version). inbox: per proxy None or batch. pend: appends that the broker has not executed,
# (proxy, proxy instance, batch). w: None or (pc, registered, entry read, next by the log)
State = namedtuple('State', 'st conn fresh entry lives flows inbox pend log w lowered bud')


class Bulk(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        return State('N' * self.N, 0, True, None, ((0, True, False), (1, True, False)), (None, None), (None, None), (), (), None, False,
                     self.budget())

    # ------------------------------------------------------------------ all steps
    def steps(self, s):
        yield from self.client(s)
        for p in (0, 1):
            yield from self.proxy(s, p)
        for i, (p, inc, b) in enumerate(s.pend):
            t = s._replace(pend=s.pend[:i] + s.pend[i + 1:], log=s.log + (b,))
            if s.flows[p] and s.flows[p][:2] == ('out', b) and s.lives[p][0] == inc:
                t = t._replace(flows=put(t.flows, p, ('done', *s.flows[p][1:])))
            yield f'the broker appends b{b} of P{p}', t
        if self.left(s, 'loss'):
            lives = tuple((inc, False, True) for inc, _, _ in s.lives)
            w = s.w and s.w[:1] + (False,) + s.w[2:]
            yield 'Redis loses everything', self.spend(s._replace(entry=None, fresh=False, lives=lives, w=w), 'loss')
        if self.left(s, 'cut') and s.log:
            yield 'the log loses its end', self.spend(s._replace(log=s.log[:-1]), 'cut')
        yield from self.writer(s)

    def client(self, s):
        b = next((b for b in range(self.N) if s.st[b] != 'A'), None)
        if b is None or s.st[b] == 'X':
            return
        if s.st[b] in 'NR' and s.inbox[s.conn] is None:
            yield f'C sends b{b} to P{s.conn}', self.say(s, b, 'F')._replace(inbox=put(s.inbox, s.conn, b))
        if s.st[b] == 'F' and self.left(s, 'reconnect'):
            for p in (0, 1):
                yield f'C times out, goes to P{p}', self.spend(self.say(s, b, 'R')._replace(conn=p), 'reconnect')
        if s.st[b] == 'F' and s.inbox[s.conn] is None and not s.flows[s.conn]:
            yield f'C sees that P{s.conn} has closed its connection', self.say(s, b, 'R')

    def say(self, s, b, x):
        return s._replace(st=s.st[:b] + x + s.st[b + 1:])

    # ------------------------------------------------------------------ proxy
    def proxy(self, s, p):
        inc, registered, old = s.lives[p]
        if not registered:
            lives = put(s.lives, p, (inc + 2, True, False))
            yield f'P{p} begins another incarnation', s._replace(lives=lives, flows=put(s.flows, p, None), inbox=put(s.inbox, p, None))
        elif self.left(s, 'crash'):
            lives = put(s.lives, p, (inc + 2, True, False))
            t = s._replace(lives=lives, flows=put(s.flows, p, None), inbox=put(s.inbox, p, None))
            yield f'P{p} crashes', self.spend(t, 'crash')
        if s.flows[p]:
            yield from self.go_on(s, p, *s.flows[p])
        elif registered and s.inbox[p] is not None:
            yield from self.begin(s, p, s.inbox[p])

    def begin(self, s, p, b):
        e, inc = s.entry, s.lives[p][0]
        if (e is None and not s.fresh) or (e and e[3] and not e[2]):
            if not any(old for _, _, old in s.lives) and e is None and not self.claims:
                yield f'P{p} begins to read the log', s._replace(flows=put(s.flows, p, ('read', None, 0)))
            elif not any(old for _, _, old in s.lives):                                    # R10: the grace period
                version = (e[0] if e else 0) + 1
                t = s._replace(entry=(version, e[1] if e else 0, (inc, None), True), flows=put(s.flows, p, ('resolve', None, version)))
                yield f'P{p} claims the entry', t
        elif e and e[2] is not None:
            if not any(other == e[2][0] for other, _, _ in s.lives):
                version = e[0] + 1
                t = s._replace(entry=(version, e[1], (inc, e[2][1]), e[3]), flows=put(s.flows, p, ('resolve', e[2][1], version)))
                yield f'P{p} takes the intent over', t
        else:
            version, due = (e[0], e[1]) if e else (0, 0)
            if b < due:
                yield f'P{p} b{b} is a duplicate', self.answer(s, p, b, 'A')
            elif b > due:
                yield f'P{p} tells 45 for b{b}', self.answer(s, p, b, 'X')
            else:
                entry = (version + 1, due, (inc, b), False)
                yield f'P{p} reserves b{b}', s._replace(entry=entry, flows=put(s.flows, p, ('reserved', b, version + 1)))

    def answer(self, s, p, b, x):
        s = s._replace(inbox=put(s.inbox, p, None))
        return self.say(s, b, x) if s.st[b] == 'F' and s.conn == p else s

    def go_on(self, s, p, what, b, version):
        inc, registered, old = s.lives[p]
        mine = registered and s.entry is not None and s.entry[0] == version
        if what == 'reserved':                                                             # R4: also under the lease of a lost state
            yield f'P{p} sends b{b}', s._replace(pend=s.pend + ((p, inc, b),), flows=put(s.flows, p, ('out', b, version)))
        elif what == 'done':
            t = self.answer(s, p, b, 'A')._replace(flows=put(s.flows, p, ('commit', b, version)))
            yield f'P{p} acknowledges b{b}', t
        elif what == 'commit' and registered:
            t = s._replace(flows=put(s.flows, p, None))
            yield f'P{p} commits b{b}: {mine}', t._replace(entry=(version + 1, b + 1, None, False)) if mine else t
        elif what == 'resolve' and not s.pend and registered:             # R6: quiescence check done, read to its end
            t = s._replace(flows=put(s.flows, p, None))
            due = max(s.entry[1], *(x + 1 for x in s.log), 0) if mine else 0
            yield f'P{p} reads the log, {due} is due: {mine}', t._replace(entry=(version + 1, due, None, False)) if mine else t
        elif what == 'read' and not s.pend and registered:
            due = max((0, *(x + 1 for x in s.log)))
            yield f'P{p} has read the log, {due} is due', s._replace(flows=put(s.flows, p, ('found', due, 0)))
        elif what == 'found' and registered:                                               # b: what is due
            t = s._replace(flows=put(s.flows, p, None))
            mine = s.entry is None or not self.swaps
            yield f'P{p} writes what it found: {mine}', t._replace(entry=(1, b, None, False)) if mine else t

    # ------------------------------------------------------------------ writer
    def writer(self, s):
        if s.w is None:
            if self.left(s, 'runs'):
                yield 'W registers', self.spend(s._replace(w=('grace', True, None, None)), 'runs')
            return
        pc, registered, seen, due = s.w
        ours = {inc for inc, _, old in s.lives if not old}
        if pc == 'grace':
            if not self.grace or not any(old for _, _, old in s.lives):
                yield 'W has waited for the leases', s._replace(w=('settle', registered, None, None))
        elif pc == 'settle':
            if not self.settles or all(inc in ours for _, inc, _ in s.pend):
                yield 'W has settled', s._replace(w=(self.reads, registered, None, None))
        elif pc == 'entry':
            following = 'log' if self.reads == 'entry' else 'swap'
            yield f'W reads the entry: {s.entry}', s._replace(w=(following, registered, ('read', s.entry), due))
        elif pc == 'log':
            following = 'swap' if self.reads == 'entry' else 'entry'
            found = max((x + 1 for x in s.log), default=0)
            yield f'W reads the log: {found} is due', s._replace(w=(following, registered, seen, found))
        else:
            yield from self.swap(s._replace(w=None), registered, seen[1], due)

    def swap(self, s, registered, seen, due):
        e = s.entry
        if self.registers and not registered:
            yield 'W is refused: its registration is gone', s
        elif self.compares and e != seen:
            yield 'W is refused: another version is stored', s
        elif e and e[2] and not self.over_intent:
            yield 'W leaves it: an intent is open', s
        elif due == 0 or (e and self.raises and due < e[1]):
            yield 'W has nothing to write', s
        else:
            version = (e[0] if e else 100) + 1
            lowered = s.lowered or bool(e and due < e[1])
            yield f'W writes that {due} is due', s._replace(entry=(version, due, None, not self.confirmed), lowered=lowered)

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        if len(set(s.log)) < len(s.log):
            return 'I1 DUPLICATE'
        if not self.cut and any(x == 'A' and b not in s.log for b, x in enumerate(s.st)):
            return 'I3 LOSS'
        if s.lowered:
            return 'V LOWERED'
        return 'E TOLD 45 WHERE NOTHING IS MISSING' if 'X' in s.st and not self.cut else None

    def is_done(self, s):
        return set(s.st) <= {'A'}

    def show(self, s):
        return f'==> client={s.st} entry={s.entry} log={s.log}'
