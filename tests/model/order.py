"""Rule R11: which error a batch gets while a lower one of its producer is unfinished. Clients take
`OUT_OF_ORDER_SEQUENCE_NUMBER`, and any permanent failure, as the end of an epoch: they send what is unfinished again as
the first batches of a new one. What of it is in the log is there twice then.

A model of its own: one producer that keeps its order when it sends again, connections that carry requests and answers in order,
one or two proxies with a queue each and the notes of each connection (proxy/producer/retry_notes.py), one entry. How an
unknown outcome ends is left open.

Safety    G  no batch twice in the log
          H  a batch never gets `OUT_OF_ORDER_SEQUENCE_NUMBER` while the client has a lower one to send whose outcome is
             not known yet
          U  the batch directly after an unrecoverable one never gets `OUT_OF_ORDER_SEQUENCE_NUMBER`, unless the client
             knows of that outcome
          O  no batch is stored while the client has a lower one of its epoch to send whose outcome is not known yet
Progress  T  from every reachable state, without any further fault, all batches can still become acknowledged or fail
             permanently
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # a batch that failed on its connection and comes again waits for lower ones that failed there: 'later' than it did | at 'any'
    # time | None is waited for; later in the order of their 'requests' | of their 'answers'
    again='later', order='requests',
    # a batch of a newer epoch that does not begin it, where one of an older epoch has failed for good: held back 'once' |
    # 'always' | 'never'
    ahead='once',
    # a batch that got through takes the notes of 'lower' ones along | only its 'own'
    forgets='own',
    # a batch whose answer leaves before the one that reports the outcome of a lower batch, which was sent again, gets a
    # retriable error: 'any' outcome | a 'failure' only | None
    before='any',
    # a batch directly after an unrecoverable one: a 'gap' | a 'fatal' failure, unless its epoch has ended on its
    # connection
    after_unknown='fatal',
    # a batch before which something is missing, and which is not in the log itself: a broker's answer, a 'gap' | a
    # 'fatal' failure
    missing='gap',
    # a lower batch of the same connection that waits in the queue is waited for too
    queued=True,
    # a batch whose topic is looked for (and which nobody sees meanwhile) is 'held': what comes after it waits | noted as 'failed' | None
    looked_for='held',
    # a producer whose entry has expired begins with any sequence: a batch that comes 'again' on a connection on which it failed
    # before, and has nothing before it there | that has 'nothing before' it on its connection | that comes again ('second time'
    # only) | 'any' batch
    starts='again',
    # a batch of whose epoch something failed for good on its connection does not begin either
    after_end=True,
)
WORLD = dict(
    N=2, window=2, proxies=1,
    expired=False,                # the entry is gone, the batches have sequences from 1 on
    begin=(), bring=0,            # batches that are in the log and in the entry, though their client has no answer
    goal='G',                     # which one is looked for; 'OG': both
    reads='all',                  # what has been answered is read before more is sent | 'one' answer may come before it
    retries='pipelined',          # a batch is sent again while lower ones are under way | 'alone'
    moves='idle',                 # it moves to its other connection when nothing is under way | at 'any' time
    patient=False,                # told `OUT_OF_ORDER_SEQUENCE_NUMBER` while a lower batch is unfinished, it sends again, as Java does
)
FAULTS = dict(
    fail=0,      # what is forwarded is not stored: retriable error
    in_time=0,   # a batch that waits gets a retriable error, because its time is up (R18)
    lost=0,      # nobody can tell whether it is stored: failure for good
    unnoted=0,   # same, after its client was answered that it is stored
    bad=0,       # refused for good, not stored
    expire=0,    # the client gives up a batch that is to be sent again
    move=0,      # the client moves to its other connection
    cut=0,       # the connection in use breaks: what is on its way there, and answers that were not read, are lost
    unknown=0,   # the proxy looks for the topic of what has just come
)

# st of a batch: N new, F under way, R to send again, A acknowledged, X failed permanently. names: (epoch, sequence) of
# each batch. entry: epoch, next sequence (None: nothing is known). intent: None or (proxy, batch, epoch, sequence,
# unrecoverable). log: (batch, epoch)
State = namedtuple('State', 'st names cur conns entry intent log bud told')
# one connection: requests not yet answered or not yet read, in order; what failed on it, the latest last; epoch of which
# something failed for good (-1: none); failed: (epoch, sequence, number); last: epoch and
# number of the last request whose answer was the outcome of a batch that had come again
Conn = namedtuple('Conn', 'reqs failed ended last')
NO_LAST = -1, -1
# where: 0 on its way, 1 at the proxy, 2 there, but its topic is looked for; answer: None, 'ok', 'err' retriable, 'fatal', 'gap'
Req = namedtuple('Req', 'b ep seq where answer no')


class Order(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        n = self.N
        return State('R' * self.bring + 'N' * (n - self.bring), tuple((0, b + self.expired) for b in range(n)), 0, (Conn((), (), -1, NO_LAST),) * 2,
                     (0, None if self.expired else self.bring), None,
                     tuple((b, 0) for b in range(self.bring)), self.budget(), False)

    def steps(self, s):
        yield from self.client(s)
        for k in range(2):
            yield from self.reads_answer(s, k)
            for i, r in enumerate(s.conns[k].reqs):
                if r.where == 0:
                    yield f'b{r.b} (epoch {r.ep}, sequence {r.seq}) reaches P{k % self.proxies}', self.with_req(s, k, i, r._replace(where=1))
                    if self.left(s, 'unknown'):
                        yield f'P{k % self.proxies} looks for the topic of b{r.b}', self.spend(self.looks_for(s, k, i, r), 'unknown')
                    break
            i, r = next(((i, r) for i, r in enumerate(s.conns[k].reqs) if r.where == 2), (None, None))
            if r:
                yield f'P{k % self.proxies} has found the topic of b{r.b}', self.with_req(s, k, i, r._replace(where=1))
        for p in range(self.proxies):
            yield from self.proxy(s, p)

    # ------------------------------------------------------------------ client
    def client(self, s):
        if self.reads == 'all' and any(c.reqs and c.reqs[0].answer for c in s.conns):
            return
        for b in range(self.N):
            if s.st[b] in 'NR' and s.st.count('F') < self.window and not (self.retries == 'alone' and s.st[b] == 'R' and 'F' in s.st[:b]):
                c = s.conns[s.cur]
                no = 0 if self.order == 'answers' else 1 + max([c.last[1], *(r.no for r in c.reqs), *(x[2] for x in c.failed)])
                t = s._replace(st=s.st[:b] + 'F' + s.st[b + 1:])
                t = t._replace(conns=put(s.conns, s.cur, c._replace(reqs=c.reqs + (Req(b, *s.names[b], 0, None, no),))))
                yield f'C sends b{b} (epoch {s.names[b][0]}, sequence {s.names[b][1]})' + (f' over connection {s.cur}' if self.move else ''), t
            if s.st[b] in 'NR':
                if s.st[b] == 'R' and self.left(s, 'expire'):
                    yield f'C gives b{b} up', self.spend(s._replace(st=s.st[:b] + 'X' + s.st[b + 1:]), 'expire')
                break
        if self.left(s, 'move') and (self.moves == 'any' or 'F' not in s.st):
            yield 'C goes on over its other connection', self.spend(s._replace(cur=1 - s.cur), 'move')

        c = s.conns[s.cur]
        if self.left(s, 'cut') and c.reqs:
            st = ''.join('R' if x == 'F' and any(r.b == b for r in c.reqs) else x for b, x in enumerate(s.st))
            cut = s._replace(st=st, cur=1 - s.cur, conns=put(s.conns, s.cur, Conn((), (), -1, NO_LAST)))
            yield 'the connection of C breaks, it goes on over its other one', self.spend(cut, 'cut')

    def reads_answer(self, s, k):
        c = s.conns[k]
        if not c.reqs or not c.reqs[0].answer:
            return
        r = c.reqs[0]
        stale = r.ep < s.names[r.b][0]                          # it has a new name already, and is sent again under that
        waits = self.patient and any(x in 'FR' for x in s.st[:r.b])
        x = 'A' if r.answer == 'ok' else 'R' if r.answer == 'err' or (r.answer == 'gap' and (stale or waits)) else 'X'
        known = {b for b, ep in s.log if ep == s.names[b][0]} | {y.b for d in s.conns for y in d.reqs if y.answer not in (None, 'err')}
        if s.intent and s.intent[4]:
            known.add(s.intent[1])
        unknown = s.intent and s.intent[4] and s.intent[2:4] == (r.ep, r.seq - 1) and s.st[s.intent[1]] != 'X'
        told = s.told or (r.answer == 'gap' and unknown) if self.goal == 'U' else s.told or (r.answer == 'gap' and not stale and any(s.st[b] in 'FRN' and b not in known for b in range(r.b)))
        s = s._replace(st=s.st[:r.b] + x + s.st[r.b + 1:], conns=put(s.conns, k, self.numbered(c._replace(reqs=c.reqs[1:]))), told=told)
        if x == 'X':
            names, due = list(s.names), 0
            for b in range(self.N):
                if s.st[b] in 'FRN':
                    names[b], due = (r.ep + 1, due), due + 1
            s = s._replace(names=tuple(names))
        yield f'C reads "{r.answer}" for b{r.b}', s

    # ------------------------------------------------------------------ proxy
    def looks_for(self, s, k, i, r):
        s = self.with_req(s, k, i, r._replace(where=2))
        if self.looked_for != 'failed':
            return s
        c = s.conns[k]
        failed = [x for x in c.failed if x[:2] != (r.ep, r.seq)] + [(r.ep, r.seq, r.no)]
        return s._replace(conns=put(s.conns, k, self.numbered(c._replace(failed=tuple(sorted(failed, key=lambda x: x[2]))))))

    def with_req(self, s, k, i, r):
        return s._replace(conns=put(s.conns, k, s.conns[k]._replace(reqs=put(s.conns[k].reqs, i, r))))

    def answer(self, s, k, i, kind):
        """R11: a permanent failure is not reported before what is lower."""
        c = s.conns[k]
        r = c.reqs[i]
        if kind in ('gap', 'fatal') and self.is_behind(c, r):
            kind = 'err'
        failed, ended, name, last = [x for x in c.failed if x[:2] != (r.ep, r.seq)], c.ended, (r.ep, r.seq), c.last
        if kind != 'err' and len(failed) < len(c.failed) and (kind != 'ok' or self.before == 'any'):
            last = r.ep, max(r.no, last[1]) if last[0] == r.ep else r.no
        elif kind != 'err' and r.no > last[1]:
            last = NO_LAST
        if kind == 'err':
            failed.append((*name, r.no if self.order == 'requests' else 1 + max((x[2] for x in c.failed), default=0)))
        elif kind == 'ok':
            failed = [x for x in failed if x[:2] > name or self.forgets == 'own']
            ended = -1 if ended < r.ep else ended
        else:
            failed = [x for x in failed if x[0] >= r.ep or r.seq]
            ended = r.ep
        reqs = put(c.reqs, i, r._replace(answer=kind))
        return s._replace(conns=put(s.conns, k, self.numbered(Conn(reqs, tuple(sorted(failed, key=lambda x: x[2])), ended, last))))

    def numbered(self, c):
        """The same, with small numbers."""
        if self.order == 'answers':
            return c._replace(failed=tuple((*x[:2], i) for i, x in enumerate(c.failed)))
        last = c.last if any(r.no < c.last[1] for r in c.reqs) else NO_LAST         # else it says nothing any more
        rank = {no: i for i, no in enumerate(sorted({x[2] for x in c.failed} | {r.no for r in c.reqs} | {last[1]} - {-1}))}
        return c._replace(reqs=tuple(r._replace(no=rank[r.no]) for r in c.reqs), last=(last[0], rank.get(last[1], -1)),
                          failed=tuple((*x[:2], rank[x[2]]) for x in c.failed))

    def is_behind(self, c, r):
        name, failed = (r.ep, r.seq), c.failed
        since = next((x[2] for x in failed if x[:2] == name), None)
        if self.looked_for == 'held' and any(y.where == 2 and (y.ep, y.seq) < name and (y.ep == r.ep or r.seq) for y in c.reqs):
            return True
        if self.queued and any(y.where == 1 and not y.answer and (y.ep, y.seq) < name and (y.ep == r.ep or r.seq) for y in c.reqs):
            return True
        if self.before and c.last[0] == r.ep and r.no < c.last[1]:
            return True
        if r.seq and -1 < c.ended < r.ep and (self.ahead == 'always' or (self.ahead == 'once' and since is None)):
            return True
        if self.again is None:
            return False
        if self.again == 'later' and since is not None:
            failed = [x for x in failed if x[2] > since]
        return any((x[0] == r.ep and x[1] < r.seq) or (x[0] < r.ep and r.seq) for x in failed)

    def waiting(self, s, p):
        return [(k, i, r) for k in range(2) if k % self.proxies == p for i, r in enumerate(s.conns[k].reqs) if r.where == 1 and not r.answer]

    def proxy(self, s, p):
        queue = self.waiting(s, p)
        if self.left(s, 'in_time'):
            for k, i, r in queue:
                yield f'P{p} answers b{r.b} in time: retriable error', self.spend(self.answer(s, k, i, 'err'), 'in_time')
        if s.intent and not s.intent[4]:
            if s.intent[0] == p:
                yield from self.resolve(s, p)
            return                                                              # waits, or is at work
        newest = max((r.ep for _, _, r in queue), default=0)
        for k, i, r in queue:
            if r.ep < newest:
                yield f'P{p} has a newer epoch than that of b{r.b}: retriable error', self.answer(s, k, i, 'err')
                return
        if queue:
            k, i, r = next((x for x in queue if (x[2].ep, x[2].seq) == s.entry), queue[0])
            yield from self.decide(s, p, k, i, r)

    def decide(self, s, p, k, i, r):
        ep, due = s.entry
        starts = due is None and r.seq != 0 and s.intent is None
        if starts and self.after_end and s.conns[k].ended == r.ep:
            starts = False
        elif starts and not self.may_start(s.conns[k], r):
            yield f'P{p} tells b{r.b} to come again: its producer has expired', self.answer(s, k, i, 'err')
            return
        if starts:
            yield f'P{p} reserves and forwards b{r.b}: its producer has expired', s._replace(intent=(p, r.b, r.ep, r.seq, False))
        elif s.intent and s.intent[1:4] == (r.b, r.ep, r.seq):
            yield f'P{p} has given b{r.b} up', self.answer(s, k, i, 'fatal')
        elif (r.ep, r.seq) == s.entry or (r.seq == 0 and (r.ep > ep or due is None)):
            yield f'P{p} reserves and forwards b{r.b}', s._replace(intent=(p, r.b, r.ep, r.seq, False))
        elif r.ep < ep:
            yield f'P{p} fences b{r.b}', self.answer(s, k, i, 'fatal')
        elif r.ep == ep and due is not None and r.seq < due:
            yield f'P{p} b{r.b} is a duplicate', self.answer(s, k, i, 'ok')
        elif s.intent and self.after_unknown == 'fatal' and s.intent[2:4] == (r.ep, r.seq - 1) and s.conns[k].ended != r.ep:
            yield f'P{p} cannot tell whether b{r.b} is due', self.answer(s, k, i, 'fatal')
        else:
            t = self.answer(s, k, i, self.missing)
            yield f'P{p} finds a gap before b{r.b}: ' + {'gap': '45', 'fatal': 'it fails for good', 'err': 'held back'}[t.conns[k].reqs[i].answer], t

    def may_start(self, c, r):
        comes_again = any(x[:2] == (r.ep, r.seq) for x in c.failed)
        nothing_before = not self.is_behind(c, r)
        return {'again': comes_again and nothing_before, 'second time': comes_again, 'nothing before': nothing_before, 'any': True}[self.starts]

    def resolve(self, s, p):
        """How it ends: stored, not stored, or nobody can tell. Who waits for it at this proxy is answered."""
        _, b, ep, seq, _ = s.intent

        def end(t, kind):
            for k, i, r in self.waiting(t, p):
                if (r.b, r.ep, r.seq) == (b, ep, seq):
                    t = self.answer(t, k, i, kind)
            return t

        stored = s._replace(log=tuple(sorted(s.log + ((b, ep),))))
        left = (ep, seq) if ep and s.entry[1] is None else s.entry         # of epoch 0 nothing is left that tells it from an absent one
        yield f'b{b} is stored', end(stored._replace(entry=(ep, seq + 1), intent=None), 'ok')
        if self.left(s, 'fail'):
            yield f'b{b} is not stored: retriable error', self.spend(end(s._replace(intent=None, entry=left), 'err'), 'fail')
        if self.left(s, 'bad'):
            yield f'b{b} is refused for good', self.spend(end(s._replace(intent=None, entry=left), 'fatal'), 'bad')
        lost = s.intent[:4] + (True,)
        entry = s.entry if s.entry[0] == ep and s.entry[1] is not None else (ep, seq)
        if self.left(s, 'unnoted'):
            yield f'b{b} is stored, its note is lost, it is given up', self.spend(end(stored._replace(intent=lost, entry=entry), 'ok'), 'unnoted')
        if self.left(s, 'lost'):
            yield f'b{b} is given up, it is stored', self.spend(end(stored._replace(intent=lost, entry=entry), 'fatal'), 'lost')
            yield f'b{b} is given up, it is not stored', self.spend(end(s._replace(intent=lost, entry=entry), 'fatal'), 'lost')

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        if self.goal == 'H':
            return 'H TOLD 45 THOUGH A LOWER ONE COMES' if s.told else None
        if self.goal == 'U':
            return 'U TOLD 45 BEHIND AN UNKNOWN OUTCOME' if s.told else None
        if 'O' in self.goal and self.is_overtaken(s):
            return 'O A HIGHER BATCH IS STORED FIRST'
        if self.goal == 'O':
            return None
        return 'G DUPLICATE' if len({b for b, _ in s.log}) < len(s.log) else None

    def is_overtaken(self, s):
        """Is a batch stored though a lower one of its epoch is still to come, whose end is not known?"""
        ended = {y.b for c in s.conns for y in c.reqs if y.answer in ('fatal', 'gap')}
        return any(s.st[low] in 'FR' and s.names[low][0] == ep and (low, ep) not in s.log and low not in ended
                   for b, ep in s.log for low in range(b))

    def is_done(self, s):
        return set(s.st) <= set('AX')

    def show(self, s):
        return f'==> log={s.log} client={s.st} notes={[c.failed for c in s.conns]}'
