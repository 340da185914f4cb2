"""Rule R23: what a writer of conditional batches has in flight together is appended from its beginning on, without holes.

A model of its own, next to `conditional`: some writers at two proxies send pipelines of two records, at where they have
read the log to. A record is appended in one step if the log ends where it expects, as the swap that reserves decides;
what can go wrong there is in `conditional`. A connection has requests and answers on their way, in order. A writer
reads an answer later than it was given; after a conflict it publishes a new pipeline at the end of the log, over the
same connection.

Safety    H  a record is in the log only after the one before it in its pipeline
          D  no record is twice in the log
          W  a new pipeline that begins where the log ends is not refused
Progress  T  from every reachable state, without any further fault, all writers come to the end of their pipelines
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # R23  a batch whose predecessor on its connection was not appended is refused or held back: 'linked' | only if that was 'refused' |
    #      'each' is decided by itself
    pipeline='linked',
    # R23  which batch follows another one: its client has said so (`'told'`) | the one before it was 'seen' without an
    #      answer when it came | it begins where that one ends ('touches')
    follows='told',
)
WORLD = dict(writers=2, pipelines=2)
FAULTS = dict(
    timeout=0,      # a proxy answers a batch retriably, without having worked on it
    cut=0,          # a writer leaves its connection; the proxy may not notice, and requests on their way may still come
    lost=0,         # a record is appended, and the connection ends before the answer
    crash=0,        # a proxy dies
)
SIZE = 2            # records of a pipeline

# log: (writer, try), ..; a try is number `SIZE * pipeline + place`. aims: per writer the offset of each try. who: per writer (connection,
# outcomes): outcomes ((try, what), ..) of its pipeline. conns: ((writer, connection), proxy, requests, answers, fates),
# ..: requests tries, answers ((try, what), ..), fates ((try, what or '?'), ..) as the proxy knows them. queues: per
# proxy ((writer, try, connection, the try that it follows or None), ..)
State = namedtuple('State', 'log aims who conns queues bud wrong')


class Pipelined(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        return State((), ((),) * self.writers, ((0, ()),) * self.writers, (), ((), ()), self.budget(), False)

    # ------------------------------------------------------------------ what a state has
    def conn(self, s, name):
        return next((c for c in s.conns if c[0] == name), None)

    def set(self, s, name, *conn):
        rest = tuple(c for c in s.conns if c[0] != name)
        return s._replace(conns=tuple(sorted(rest + (((name, *conn),) if conn else ()))))

    def pipeline_of(self, s, w):
        return tuple(range(len(s.aims[w]) - SIZE, len(s.aims[w])))

    def is_over(self, s, w):
        """Has every record of the pipeline its outcome, or has it failed, with nothing in flight?"""
        c, settled = s.who[w]
        if not s.aims[w]:
            return True
        failed = any(what == 'X' for _, what in settled)
        conn = self.conn(s, (w, c))
        flying = conn is not None and (conn[2] or conn[3] or any(q[0] == w and q[2] == c for q in s.queues[conn[1]]))
        return len(settled) == SIZE or (failed and not flying)

    # ------------------------------------------------------------------ steps
    def steps(self, s):
        for w in range(self.writers):
            c, settled = s.who[w]
            conn = self.conn(s, (w, c))
            if self.is_over(s, w):
                if len(s.aims[w]) < SIZE * self.pipelines:
                    n = len(s.log)
                    t = s._replace(aims=put(s.aims, w, s.aims[w] + tuple(range(n, n + SIZE))), who=put(s.who, w, (c, ())))
                    yield from self.send(t, w, f'W{w} publishes {SIZE} records from offset {n} on')
                continue
            if conn is None or not (conn[2] or conn[3] or any(q[0] == w and q[2] == c for q in s.queues[conn[1]])):
                yield from self.send(s, w, f'W{w} sends again what has no outcome')
            elif self.left(s, 'cut'):
                t = self.spend(s._replace(who=put(s.who, w, (c + 1, settled))), 'cut')
                t = self.set(t, (w, c), conn[1], conn[2], (), conn[4])
                if any(what == 'X' for _, what in settled):
                    yield f'W{w} leaves its connection', t  # what came after a conflict is not sent again
                else:
                    yield from self.send(t, w, f'W{w} goes elsewhere')
        for conn in s.conns:
            yield from self.travel(s, conn)
        for p in (0, 1):
            for q in s.queues[p]:
                yield from self.work(s, p, q)
            if self.left(s, 'crash') and (s.queues[p] or any(c[1] == p for c in s.conns)):
                t = self.spend(s._replace(queues=put(s.queues, p, ())), 'crash')
                for c in s.conns:
                    if c[1] == p:
                        t = self.set(t, c[0])
                yield f'P{p} dies', t

    def send(self, s, w, label):
        """What has no outcome, in order, over the connection that is there or a new one."""
        c, settled = s.who[w]
        known = [k for k, _ in settled]
        tries = tuple(k for k in self.pipeline_of(s, w) if k not in known)
        conn = self.conn(s, (w, c))
        for p in (0, 1) if conn is None else (conn[1],):
            yield f'{label} (P{p})', self.set(s, (w, c), p, tries, (), () if conn is None else conn[4])

    def travel(self, s, conn):
        (w, c), p, requests, answers, fates = conn
        if requests:
            k = requests[0]
            before = dict(fates).get(k - 1)
            is_linked = k % SIZE > 0 and before is not None and (self.follows != 'seen' or before == '?')
            linked, last = k - 1 if is_linked else None, fates[-1][0] if fates else k
            if self.follows == 'touches' and last != k and s.aims[w][last] + 1 == s.aims[w][k]:
                linked = last
            queue = tuple(q for q in s.queues[p] if q[:2] != (w, k)) + ((w, k, c, linked),)
            kept = tuple(f for f in fates if f[0] != k)[-SIZE:] + ((k, '?'),)
            t = self.set(s, (w, c), p, requests[1:], answers, kept)
            yield f'r{k} of W{w} comes to P{p}', t._replace(queues=put(s.queues, p, queue))
        if c != s.who[w][0]:
            queues = put(s.queues, p, tuple(q for q in s.queues[p] if q[0] != w or q[2] != c))
            yield f'P{p} sees that W{w} has gone', self.set(s._replace(queues=queues), (w, c))
        elif answers:
            (k, what), settled = answers[0], s.who[w][1]
            if what != 'R':
                settled += ((k, what),)
            t = self.set(s, (w, c), p, requests, answers[1:], fates)
            yield f'W{w} reads {what} for r{k}', t._replace(who=put(s.who, w, (c, settled)))

    def answer(self, s, p, q, what):
        w, k, c, _ = q
        t = s._replace(queues=put(s.queues, p, tuple(x for x in s.queues[p] if x != q)))
        conn = self.conn(t, (w, c))
        if conn is None:
            return t
        fates = tuple((n, what if n == k else f) for n, f in conn[4])
        return self.set(t, (w, c), p, conn[2], conn[3] + ((k, what),) if c == s.who[w][0] else (), fates)

    def work(self, s, p, q):
        w, k, c, linked = q
        aim, end = s.aims[w][k], len(s.log)
        if self.left(s, 'timeout'):
            yield f'P{p} cannot tell in time about r{k} of W{w}', self.spend(self.answer(s, p, q, 'R'), 'timeout')
        if (w, k) in s.log:
            yield f'P{p} finds r{k} of W{w}', self.answer(s, p, q, 'A')
            return
        if aim < end:
            yield f'P{p} r{k} of W{w}: conflict', self.answer(s, p, q, 'X')
            return
        conn = self.conn(s, (w, c))
        ahead = None if conn is None else dict(conn[4]).get(linked)
        if self.pipeline != 'each' and ahead == '?' and any(x[:3] == (w, linked, c) for x in s.queues[p]):
            return                                          # that one first
        if self.pipeline == 'linked' and ahead in ('?', 'R'):
            yield f'P{p} holds r{k} of W{w} back', self.answer(s, p, q, 'R')
        elif self.pipeline != 'each' and ahead == 'X' or aim > end:
            t = self.answer(s, p, q, 'X')
            yield f'P{p} r{k} of W{w} is cut off', t._replace(wrong=s.wrong or (k % SIZE == 0 and aim == end))
        else:
            t = self.answer(s, p, q, 'A')._replace(log=s.log + ((w, k),))
            yield f'P{p} appends r{k} of W{w} at {end}', t
            if self.left(s, 'lost') and c == s.who[w][0]:
                t = self.set(t._replace(who=put(s.who, w, (c + 1, s.who[w][1]))), (w, c))
                queues = put(t.queues, p, tuple(x for x in t.queues[p] if x[0] != w or x[2] != c))
                yield f'P{p} appends r{k} of W{w} at {end}, the answer is lost', self.spend(t._replace(queues=queues), 'lost')

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        if len(s.log) != len(set(s.log)):
            return 'D TWICE'
        if any(k % SIZE and (w, k - 1) not in s.log for w, k in s.log):
            return 'H A HOLE'
        if s.wrong:
            return 'W A NEW PIPELINE IS REFUSED WHERE THE LOG ENDS'
        return None

    def is_done(self, s):
        return all(self.is_over(s, w) and len(s.aims[w]) == SIZE * self.pipelines for w in range(self.writers))

    def show(self, s):
        return f'==> log={s.log} aims={s.aims} who={s.who} conns={s.conns} queues={s.queues}'
