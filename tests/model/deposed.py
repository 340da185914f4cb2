"""Rules R6 and R9 while two brokers lead: one has been deposed and does not know it yet. Metadata may name either of them.

A model of its own: broker A leads, B takes over (it has all that the high watermark of A has passed), A learns of it
later; one proxy, one batch, and foreign records. What A stores after that is gone when it learns. Nothing is under way
any more after the quiescence check (see model.py).

Safety    G  the batch is not twice in the log
          I3 an acknowledged batch is in the log
          E  for a batch in the log the proxy returns neither `OUT_OF_ORDER_SEQUENCE_NUMBER` (it is not there) nor
             `INVALID_RECORD` (it has vanished)
Progress  T  from every reachable state, without any further fault, the batch can still become acknowledged
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # R6  before anything is concluded, it is asked who else leads: brokers that something was 'sent' to | 'all' brokers | None
    rivals='sent',
    # R6  the end of the log is that of 'one' leader | the 'least' that any leader has reported
    ends='one',
    # R9  the same question about a batch that is known to be stored: 'all' brokers | None
    rivals_of_stored='all',
    # R9  a log that ends before what is known to be committed is no proof: 'later' | 'read' as it is
    short='later',
)
# it is brought again, and looked for at its offset (a 'duplicate') | in what is committed ('below' the window) | in the log: the entry is lost
# ('rebuild', R10)
WORLD = dict(brings='duplicate')
FAULTS = dict(depose=1, broken=0, lost=0, foreign=0, away=0)
A, B = 0, 1
FORWARDS = 2

# logs, hws: of A and B, 'b' and 'f'. lead: who leads. deaf: A does not know that it is deposed. client: N to send, F
# under way, A acknowledged, X got `OUT_OF_ORDER_SEQUENCE_NUMBER` or `INVALID_RECORD`. flow: what the proxy does. pend:
# (broker, somebody waits for it) or None. at: where the entry has the batch. away: B cannot be reached
State = namedtuple('State', 'logs hws lead deaf client flow pend at away bud')
# pc: out, `settle` (the quiescence check), end, rival, scan, again; sent: to whom last; end, by: the end of the log,
# and who reported it; tries; stored: R9
Flow = namedtuple('Flow', 'pc sent end by tries stored')


class Deposed(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        return State(((), ()), (0, 0), A, False, 'N', None, None, -1, False, self.budget())

    def leads(self, s, broker):
        return broker == s.lead or (broker == A and s.deaf)

    def reached(self, s, broker):
        return not (s.away and broker == B)

    def rival(self, s, asked, reader):
        return any(self.leads(s, x) and self.reached(s, x) for x in asked if x != reader)

    # ------------------------------------------------------------------ brokers
    def steps(self, s):
        for x in (A, B):
            if self.left(s, 'foreign') and self.leads(s, x):
                yield f'foreign record at {"AB"[x]}', self.spend(self.append(s, x, 'f'), 'foreign')
        if s.hws[s.lead] < len(s.logs[s.lead]):
            yield f'the followers of {"AB"[s.lead]} have it all', s._replace(hws=put(s.hws, s.lead, len(s.logs[s.lead])))
        if self.left(s, 'depose') and s.lead == A:
            for n in range(s.hws[A], len(s.logs[A]) + 1):
                yield (f'B leads, with {n} record(s) of A; A does not know it',
                       self.spend(s._replace(lead=B, deaf=True, logs=put(s.logs, B, s.logs[A][:n]), hws=put(s.hws, B, s.hws[A])), 'depose'))
        if s.deaf:
            yield 'A learns that it is deposed', s._replace(deaf=False, logs=put(s.logs, A, ()), hws=put(s.hws, A, 0))
        if self.left(s, 'away'):
            yield 'B cannot be reached', self.spend(s._replace(away=True), 'away')
        if s.away:
            yield 'B can be reached again', s._replace(away=False)
        if s.pend:
            x, waits = s.pend
            rest = s._replace(pend=None)
            if not waits:
                yield 'the request of a broken connection is dropped', rest
            if self.leads(s, x):
                yield f'{"AB"[x]} appends b at {len(s.logs[x])}', self.append(rest, x, 'b')
            elif waits:
                yield f'{"AB"[x]} does not lead: refused', rest._replace(flow=None, client='N')
            else:
                yield f'{"AB"[x]} does not lead', rest
        yield from self.proxy_steps(s)

    def append(self, s, x, what):
        return s._replace(logs=put(s.logs, x, s.logs[x] + (what,)))

    # ------------------------------------------------------------------ proxy
    def proxy_steps(self, s):
        w = s.flow
        if w is None:
            if s.client == 'N' and s.at >= 0:
                yield 'C brings b again', s._replace(client='F', flow=Flow('end', None, None, None, 0, True))
            elif s.client == 'N':
                for x in (A, B):
                    if self.reached(s, x):
                        yield f'P forwards b to {"AB"[x]}', s._replace(client='F', flow=Flow('out', x, None, None, 0, False), pend=(x, True))
            return
        yield from getattr(self, 'at_' + w.pc)(s, w)

    def done(self, s, at, how):
        yield f'P {how}: {at}', s._replace(client='A', flow=None, at=at)
        if self.left(s, 'lost'):
            yield f'P {how}: {at}, but the answer is lost', self.spend(s._replace(client='N', flow=None, at=at), 'lost')

    def at_out(self, s, w):
        x = w.sent
        if s.pend is None and x == s.lead and 'b' in s.logs[x][:s.hws[x]]:
            yield from self.done(s, s.logs[x].index('b'), 'has the answer')
        if self.left(s, 'broken'):
            t = s._replace(pend=s.pend and (x, False), flow=w._replace(pc='settle'))
            yield f'the connection to {"AB"[x]} breaks, b in doubt', self.spend(t, 'broken')
        if s.pend is None:                                               # a deposed leader never answers: time is up
            yield f'{"AB"[x]} does not answer in time, b in doubt', s._replace(flow=w._replace(pc='settle'))

    def at_settle(self, s, w):
        if s.pend is None:
            yield 'P settled', s._replace(flow=w._replace(pc='end', end=None, by=None))

    def at_end(self, s, w):
        for x in (A, B):
            if not self.leads(s, x) or not self.reached(s, x):
                continue
            end = len(s.logs[x])
            if w.end is not None and (self.ends == 'least' or w.by == x):
                end = min(end, w.end)
            shown = s.hws[x] >= end
            text = f'P asks {"AB"[x]}: its log ends at {end}' + ('' if shown else f', its high watermark is {s.hws[x]}')
            if (shown or end != w.end or x != w.by) and not (w.stored and self.brings == 'duplicate'):
                yield text, s._replace(flow=w._replace(pc='rival' if shown else 'end', end=end, by=x))
            elif w.stored and self.brings == 'duplicate' and (s.hws[x] > s.at or len(s.logs[x]) <= s.at):
                yield text, s._replace(flow=w._replace(pc='rival', end=len(s.logs[x]), by=x))

    def at_rival(self, s, w):
        asked = {'sent': (w.sent,), 'all': (A, B), None: ()}[self.rivals_of_stored if w.stored else self.rivals]
        if self.rival(s, asked, w.by):
            yield 'P finds that another one leads too: later', s._replace(flow=w._replace(pc='end', end=None, by=None))
        else:
            yield 'P finds nobody else that leads', s._replace(flow=w._replace(pc='scan'))

    def at_scan(self, s, w):
        log, again = s.logs[w.by], s._replace(flow=w._replace(pc='end', end=None, by=None))
        if not self.leads(s, w.by) or not self.reached(s, w.by):
            yield f'{"AB"[w.by]} does not answer a fetch', again
        elif w.stored and self.brings != 'rebuild':
            there = 'b' in log[:w.end] if self.brings == 'below' else s.hws[w.by] > s.at and log[s.at:s.at + 1] == ('b',)
            if there:
                yield from self.done(s, log.index('b'), f'finds b in the log of {"AB"[w.by]}')
            elif w.end <= s.at and self.short == 'later':
                yield f'the log of {"AB"[w.by]} ends before what is committed: later', again
            else:
                text = 'is not there: 45' if self.brings == 'below' else 'has vanished: 87'
                yield f'P reads the log of {"AB"[w.by]}: b {text}', s._replace(client='X', flow=None)
        elif 'b' in log[:w.end]:
            yield from self.done(s, log.index('b'), f'finds b in the log of {"AB"[w.by]}')
        else:
            yield f'P reads the log of {"AB"[w.by]} up to {w.end}: b is not there', s._replace(flow=w._replace(pc='again', stored=False))

    def at_again(self, s, w):
        if w.sent is not None and w.tries + 1 >= FORWARDS:
            yield 'P: lost several times, retriable error', s._replace(flow=None, client='N')
            return
        for x in (A, B):
            if self.reached(s, x):
                yield f'P forwards b again, to {"AB"[x]}', s._replace(flow=Flow('out', x, None, None, w.tries + 1, False), pend=(x, True))

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        log = s.logs[s.lead]
        if log.count('b') > 1:
            return 'G DUPLICATE'
        if s.client == 'A' and 'b' not in log:
            return 'I3 LOST'
        if s.client == 'X' and 'b' in log:
            return 'E TOLD THAT A STORED BATCH IS NOT THERE'
        return None

    def is_done(self, s):
        return s.client in 'AX'

    def show(self, s):
        return f'==> log of A={s.logs[A]} (high watermark {s.hws[A]}), of B={s.logs[B]} (high watermark {s.hws[B]}), client={s.client}'
