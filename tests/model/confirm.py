"""Rule R11, by what a gap is proven: a read may have been executed before the batch came, or by a server that was the
master.

A model of its own: one producer that sends its batches one after the other, each when the one before it is
acknowledged, so that there is never a gap. Two proxies, each with an ordered connection to Redis. Another client, which
names the same producer id, makes a proxy read the entry, too. Redis may be demoted: P1 goes to the new master, P0 still
talks to the former one, which answers reads and takes no writes. What is appended is committed in the same step;
unknown outcomes are what the other models are about.

Safety    E  no proxy returns `OUT_OF_ORDER_SEQUENCE_NUMBER`: nothing is missing
Progress  T  from every reachable state, without any further fault, all batches can still become acknowledged
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # R11  what proves a gap: a value that was 'read' | one whose read left 'after' the batch came | a 'swap' that left after it came
    confirmed_by='swap',
)
WORLD = dict(N=3)
FAULTS = dict(
    reconnect=2,    # the client times out, sends again to either proxy
    other=1,        # another client makes a proxy read the entry
    demote=1,       # P0 is left with a replica that lags for ever
)

# st: of each batch N new, R to send again, F under way, A acknowledged, X got `OUT_OF_ORDER_SEQUENCE_NUMBER`. conn,
# cid: the client's proxy and connection. entry: (version, next) at the master; lagging: what P0's server has, None:
# that is the master. held: per proxy what it knows, None: nothing. queues: per proxy ((batch, connection), ..). asked:
# per proxy None or (reply, those that waited when it left)
State = namedtuple('State', 'st conn cid entry lagging held queues asked bud')


class Confirm(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        return State('N' * self.N, 0, 0, (0, 0), None, (None, None), ((), ()), (None, None), self.budget())

    def steps(self, s):
        b = next((b for b in range(self.N) if s.st[b] != 'A'), None)
        if b is not None and s.st[b] in 'NR':
            t = s._replace(st=s.st[:b] + 'F' + s.st[b + 1:], queues=put(s.queues, s.conn, s.queues[s.conn] + ((b, s.cid),)))
            yield f'C sends b{b} to P{s.conn}', t
        if b is not None and s.st[b] == 'F' and self.left(s, 'reconnect'):
            for p in (0, 1):
                t = s._replace(st=s.st.replace('F', 'R'), cid=s.cid + 1, conn=p)
                yield f'C times out, reconnects to P{p}', self.spend(t, 'reconnect')
        if s.lagging is None and self.left(s, 'demote'):
            yield 'Redis is demoted, P1 goes to the new master', self.spend(s._replace(lagging=s.entry), 'demote')
        for p in (0, 1):
            if s.asked[p] is not None:
                yield f'P{p} takes the reply', self.take(s, p)
            elif s.queues[p] and s.held[p] is None:
                yield f'P{p} asks for the entry', self.ask(s, p)
            elif s.queues[p]:
                yield from self.decide(s, p, just_read=False, seen=())
            elif self.left(s, 'other'):
                yield f'P{p} asks for the entry, for somebody else', self.spend(self.ask(s, p), 'other')

    # ------------------------------------------------------------------ Redis
    def there(self, s, p):
        return s.lagging if p == 0 and s.lagging is not None else s.entry

    def ask(self, s, p):
        return s._replace(asked=put(s.asked, p, (self.there(s, p), s.queues[p])))

    def swap(self, s, p, due):
        """The state after a swap by what the proxy holds, and whether it took place."""
        if p == 0 and s.lagging is not None:                               # refused: it connects again, to the master
            return s._replace(lagging=None, held=put(s.held, p, None)), False
        if s.held[p] != s.entry:
            return s._replace(held=put(s.held, p, s.entry)), False
        entry = s.entry[0] + 1, due
        return s._replace(entry=entry, held=put(s.held, p, entry)), True

    # ------------------------------------------------------------------ proxy
    def take(self, s, p):
        reply, seen = s.asked[p]
        s = s._replace(asked=put(s.asked, p, None), held=put(s.held, p, reply))
        following = list(self.decide(s, p, just_read=True, seen=seen)) if s.queues[p] else []
        return following[0][1] if following else s

    def answer(self, s, p, x):
        (b, cid), *rest = s.queues[p]
        s = s._replace(queues=put(s.queues, p, tuple(rest)))
        return s._replace(st=s.st[:b] + x + s.st[b + 1:]) if cid == s.cid and s.st[b] == 'F' else s

    def decide(self, s, p, just_read, seen):
        (b, cid), due = s.queues[p][0], s.held[p][1]
        if cid != s.cid:
            yield f'P{p} drops b{b}, its client has gone', s._replace(queues=put(s.queues, p, s.queues[p][1:]))
        elif b < due:
            yield f'P{p} b{b} is a duplicate', self.answer(s, p, 'A')
        elif b == due:
            t, swapped = self.swap(s, p, b + 1)
            yield f'P{p} reserves, appends and commits b{b}: {swapped}', self.answer(t, p, 'A') if swapped else t
        elif self.confirmed_by == 'swap':
            t, swapped = self.swap(s, p, due)
            yield f'P{p} confirms that b{due} is due: {swapped}', self.answer(t, p, 'X') if swapped else t
        elif just_read and (self.confirmed_by == 'read' or (b, cid) in seen):
            yield f'P{p} has read that b{due} is due: 45 for b{b}', self.answer(s, p, 'X')
        else:
            yield f'P{p} reads again', s._replace(held=put(s.held, p, None))

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        return 'E TOLD 45 WHERE NOTHING IS MISSING' if 'X' in s.st else None

    def is_done(self, s):
        return set(s.st) <= {'A'}

    def show(self, s):
        return f'==> client={s.st} entry={s.entry} at the former master: {s.lagging}'
