"""Rule R2 with an append reservation (`append_reservation.py`): how an owner that makes no swap for a batch learns that another
proxy wants the entry.

A model of its own, in which versions, lost replies and late commands are what they are: one producer, batches one after the other, two
proxies that live, a log that always answers. A proxy that wants a reserved entry writes it back with the next version;
the owner's next write fails by that, and the value that comes with the refusal has its own name.

Safety    G  no batch twice in the log
          E  no proxy returns `OUT_OF_ORDER_SEQUENCE_NUMBER`
Progress  T  from every reachable state, without any further fault, all batches can still become acknowledged
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # an owner whose write is refused, by a value that has its own name, takes the version along and hands over
    # ('asked') | continues ('again') | takes the value along too, as any other that it finds ('value')
    refused='asked',
    # a swap that was to take the entry is refused by a value that has its own name, as its reply was lost and somebody has asked since: the
    # entry is its own, and is 'handed over' | it is 'left'
    refused_take='handed over',
    # the entry is asked for by a 'version' that is raised | not at all (None)
    asks='version',
    # an owner that has nothing to do hands over: it has nothing to write, so nothing tells it that it was asked
    idle=True,
    # a repeated swap that finds its own value has been executed before: True | False that is a refusal
    same_is_done=True,
)
WORLD = dict(N=2)
VERSIONS = 16           # nobody asks beyond it: the search has to end
FAULTS = dict(
    reconnect=0,    # the client times out, sends again to either proxy
    slow=0,         # the reply to a swap is lost, or the command is late
)

# st: of each batch N new, F under way, R to send again, A acknowledged, X got `OUT_OF_ORDER_SEQUENCE_NUMBER`. late:
# swaps that may be executed still
State = namedtuple('State', 'st conn cid stored pr log late bud')
# entry: version, owner, sequence that is due
Entry = namedtuple('Entry', 'version owner next')
# known: the entry as it was last seen; due: in memory, of an owner; out: swap without a reply (what for, expected version, value); flow: (pc,
# batch, connection)
Proxy = namedtuple('Proxy', 'known owns due asked out flow')


class Handover(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        p = Proxy(None, False, 0, False, None, None)
        return State('N' * self.N, 0, 0, Entry(1, None, 0), (p, p), (), (), self.budget())

    def steps(self, s):
        b = next((b for b in range(self.N) if s.st[b] not in 'AX'), None)
        if b is not None and s.st[b] in 'NR' and s.pr[s.conn].flow is None:
            yield f'C sends b{b} to P{s.conn}', self.setp(s._replace(st=put_text(s.st, b, 'F')), s.conn, flow=('decide', b, s.cid))
        if b is not None and s.st[b] == 'F' and self.left(s, 'reconnect'):
            for p in (0, 1):
                t = s._replace(st=s.st.replace('F', 'R'), cid=s.cid + 1, conn=p)
                yield f'C times out, reconnects to P{p}', self.spend(t, 'reconnect')
        for i, (expected, value) in enumerate(s.late):
            rest = s._replace(late=s.late[:i] + s.late[i + 1:])
            yield 'REDIS never executes a late swap', rest
            if s.stored.version == expected:
                yield f'REDIS executes a late swap: {value}', rest._replace(stored=value)
        for p in (0, 1):
            x = s.pr[p]
            if x.out:
                yield from self.swaps(s, p, *x.out)
            elif x.owns:
                yield from self.keeps(s, p)
            if x.flow:
                yield from getattr(self, 'at_' + x.flow[0])(s, p, *x.flow[1:])

    def setp(self, s, p, **kw):
        return s._replace(pr=put(s.pr, p, s.pr[p]._replace(**kw)))

    def answer(self, s, p, b, cid, x):
        s = self.setp(s, p, flow=None)
        return s._replace(st=put_text(s.st, b, x)) if cid == s.cid and s.st[b] == 'F' else s

    # ------------------------------------------------------------------ Redis
    def swaps(self, s, p, what, expected, value):
        fits = s.stored.version == expected
        done = fits or (self.same_is_done and s.stored == value)
        t = s._replace(stored=value) if fits else s
        yield f'P{p} {what}: ' + ('done' if done else f'refused, {s.stored}'), self.replied(t, p, what, done)
        if self.left(s, 'slow'):
            if fits:
                yield f'P{p} {what}: executed, but the reply is lost', self.spend(t, 'slow')
            yield f'P{p} {what}: the command is late, it is sent again', self.spend(s._replace(late=s.late + ((expected, value),)), 'slow')

    def replied(self, s, p, what, done):
        x, stored = s.pr[p], s.stored
        s = self.setp(s, p, out=None, known=stored)
        if what == 'asks':
            return s
        if done and what == 'takes':
            return self.setp(s, p, owns=True, due=stored.next, asked=False)
        if done:
            return self.setp(s, p, owns=False, asked=False) if what == 'hands over' else s
        if stored.owner != p or (what == 'takes' and self.refused_take == 'left'):
            return self.setp(s, p, owns=False, asked=False)
        if what == 'takes':
            return self.setp(s, p, owns=True, due=stored.next, asked=True)
        if self.refused == 'value':
            return self.setp(s, p, due=stored.next, asked=True)
        return self.setp(s, p, asked=x.asked or self.refused == 'asked')

    def keeps(self, s, p):
        x = s.pr[p]
        version = x.known.version
        flies = x.flow is not None and x.flow[0] != 'decide'
        if (x.asked or (self.idle and x.flow is None)) and not flies:
            yield f'P{p} begins to hand over', self.setp(s, p, out=('hands over', version, Entry(version + 1, None, x.due)))
        if not x.asked and x.due != x.known.next:
            yield f'P{p} begins to write', self.setp(s, p, out=('writes', version, Entry(version + 1, p, x.due)))

    # ------------------------------------------------------------------ batches
    def at_decide(self, s, p, b, cid):
        x = s.pr[p]
        if cid != s.cid:
            yield f'P{p} drops b{b}', self.setp(s, p, flow=None)
        elif x.owns:
            if x.out and x.out[0] == 'hands over':                      # nothing begins under it once that is sent
                return
            yield from self.verdict_on(s, p, b, cid, x.due, 'send')
        elif x.out is None:
            e = s.stored
            t = self.setp(s, p, known=e)
            if e.owner not in (None, p):
                if self.asks and x.known != e and e.version < VERSIONS:         # once for each version
                    yield f'P{p} asks P{e.owner} for the entry', self.setp(t, p, out=('asks', e.version, e._replace(version=e.version + 1)))
            elif b == e.next or e.owner == p:
                yield f'P{p} begins to take the entry', self.setp(t, p, out=('takes', e.version, Entry(e.version + 1, p, e.next)))
            else:
                yield from self.verdict_on(t, p, b, cid, e.next, None)

    def verdict_on(self, s, p, b, cid, due, then):
        if b == due:
            yield f'P{p} accepts b{b}', self.setp(s, p, flow=(then, b, cid))
        else:
            yield f'P{p} b{b}: ' + ('a duplicate' if b < due else '45'), self.answer(s, p, b, cid, 'A' if b < due else 'X')

    def at_send(self, s, p, b, cid):
        if cid != s.cid:                                                # R17
            yield f'P{p} does not forward b{b}, its client has gone', self.setp(s, p, flow=None)
        else:
            yield f'P{p} forwards b{b}: appended', self.setp(s._replace(log=s.log + (b,)), p, flow=('done', b, cid))

    def at_done(self, s, p, b, cid):
        yield f'P{p} knows of b{b}', self.answer(self.setp(s, p, due=b + 1), p, b, cid, 'A')

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        if len(set(s.log)) < len(s.log):
            return 'G DUPLICATE'
        return 'E TOLD 45' if 'X' in s.st else None

    def is_done(self, s):
        return set(s.st) <= {'A'}

    def show(self, s):
        return f'==> log={s.log} client={s.st} stored={s.stored}'


def put_text(text, i, x):
    return text[:i] + x + text[i + 1:]
