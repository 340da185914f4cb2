"""Rule R23: a batch that says at which offset it has to be is appended there, or not at all.

A model of its own: one partition, some writers at two proxies. A writer reads where the log ends and publishes one
record for that offset; if the proxy reports that the log ends elsewhere, it reads again and publishes another one. All
of them have one producer id, and the base sequence is the expected offset, modulo a small number. The entry says where
the log ends: its version, the Redis data generation, the offset after the last record and the sequence that is due (R23
compares the two), and an intent. Requests to the broker are executed some time after they were sent, also if their
proxy has died; the quiescence check is that none is on its way.

Safety    S  a writer with a success has its record at the offset that it expected   (unless the log has lost something)
          C  a writer with a conflict, or with the error that the conditional partition is fenced, has no record in the
             log, then or later   (unless a copy of its request is left at another proxy)
          D  no record is twice in the log
          U  of one offset only one writer gets a success, also if the log has lost what was there   (unless Redis has
             lost everything)
          V  once a record lies elsewhere than it was to, nothing more is appended   (unless Redis has lost everything)
Progress  T  from every reachable state, without any further fault, all writers can still succeed, or the proxy reports
             that the conditional partition is fenced
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # R23  an entry that is lost is made from the 'end' of the log, once nothing is on its way | the same at 'once' | any producer's begins
    #      with sequence 'zero' | with 'any' sequence, as after its state expired
    begin='end',
    # R23  what lies at an offset that the log has passed is compared by its 'content' | the same 'numbers' are the same batch
    same='content',
    # R23  a batch that is not due is looked for from its own offset 'on', up to the first record that lies where it was
    #      to be | at its 'own' offset, and where the entry knows that a record lies elsewhere than it was to
    looks='on',
    # R23  where the broker says that a record lies is 'compared' with its sequence | 'trusted'
    place='compared',
    # R23  a batch is not due: before the conflict is reported it is 'looked' where the log does end, and if that is
    #      elsewhere than by the entry the partition is fenced | only a 'later' end, where the batch expects a later
    #      offset | the conflict is reported at once (`'told'`)
    ahead='looked',
    # R23  a Redis data generation begins, and the log ends before where the entry says: the partition is 'fenced' | it
    #      'begins' there
    shorter='fenced',
    # R11  a conflict is confirmed by a 'swap' that left after the batch came | by what was 'read'
    confirmed_by='swap',
    # R23  all writers have 'one' producer id | 'each' its own
    ids='one',
    # R23  nobody raises the epoch | 'raised': a writer begins an epoch of its own, which begins with sequence 0
    epochs='one',
    # R23  sequences are compared in the 'ring' | as 'plain' numbers
    order='ring',
    # R23  the whole offset is compared where it is known (the header) | only its sequence
    full=False,
    # R23  a producer that is not conditional is refused at the proxies | 'let in'
    others='refused',
)
WORLD = dict(
    writers=2, records=1, start=0, modulus=8,
    tries=3,            # so often a writer publishes at most
    sleeps=False,       # the first writer publishes for offset `start`, whenever it does, and no other
    copies=False,       # a request that its client has left is started all the same
)
FAULTS = dict(
    crash=0,        # a proxy dies
    lost=0,         # an answer of the broker is lost, or the request before it was executed
    resend=0,       # a writer goes to the other proxy with the same batch
    foreign=0,      # somebody writes to the broker itself
    plain=0,        # somebody writes through a proxy, not conditionally
    truncate=0,     # the log loses its last record
    loss=0,         # Redis loses its last write
    flush=0,        # Redis loses all
)

# log: (writer, try) or None for a foreign record. aims: per writer the offset of each try. who: per writer (records
# done, status, connection); status: R reads, W waits, D done, F fenced, G gives up. `told`: ((writer, try, what), ..),
# what: A success, X conflict, F fenced, E it lies elsewhere. entries: per producer id None or (version,
# data generation, end, due, intent), intent None or (proxy instance, writer, try). before: the last value of it. wire:
# ((proxy instance, writer, try), ..). proxies: (name of the proxy instance, data generation, held, queue, out): queue
# ((writer, try, connection), ..), out None or (writer, try, connection, base), base None: no answer yet, -1: lost.
# held: (id, entry) or None
State = namedtuple('State', 'log aims who told entries before generation wire proxies next lost flushed bud')
Proxy = namedtuple('Proxy', 'name generation held queue out')


class Conditional(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        n = self.writers if self.ids == 'each' else 1
        return State((None,) * self.start, ((),) * self.writers, ((0, 'R', 0),) * self.writers, (), (None,) * n, (None,) * n, 0, (),
                     (Proxy(0, 0, None, (), None), Proxy(1, 0, None, (), None)), 2, False, False, self.budget())

    def id_of(self, w):
        return w if self.ids == 'each' else 0

    def seq(self, s, w, k):
        return 0 if self.epochs == 'raised' and k == 0 else s.aims[w][k] % self.modulus

    # ------------------------------------------------------------------ steps
    def steps(self, s):
        for w, (done, status, conn) in enumerate(s.who):
            if status == 'R' and len(s.aims[w]) < self.tries:
                n = self.start if self.sleeps and w == 0 else len(s.log)
                k = len(s.aims[w])
                for p in (0, 1):
                    t = s._replace(aims=put(s.aims, w, s.aims[w] + (n,)), who=put(s.who, w, (done, 'W', conn)))
                    yield f'W{w} publishes r{k} for offset {n} at P{p}', self.come(t, p, w, k, conn)
            if status == 'W':
                k = len(s.aims[w]) - 1
                here = any(q[:2] == (w, k) and q[2] == conn for x in s.proxies for q in x.queue + ((x.out[:3],) if x.out else ()))
                for p in (0, 1):
                    t = s._replace(who=put(s.who, w, (done, status, conn + 1)))
                    t = self.come(t, p, w, k, conn + 1)
                    if not here:
                        yield f'W{w} comes again with r{k} to P{p}', t
                    elif self.left(s, 'resend'):
                        yield f'W{w} goes to P{p} with r{k}', self.spend(t, 'resend')
        for r in s.wire:
            yield from self.execute(s, r)
        for p in (0, 1):
            yield from self.proxy(s, p)
            if self.left(s, 'crash'):
                x = Proxy(s.next, s.generation, None, (), None)
                yield f'P{p} dies', self.spend(s._replace(proxies=put(s.proxies, p, x), next=s.next + 1), 'crash')
        if self.left(s, 'foreign'):
            yield 'somebody writes past the proxies', self.spend(s._replace(log=s.log + (None,)), 'foreign')
        if self.left(s, 'plain') and self.others == 'let in':
            yield 'somebody writes through a proxy', self.spend(s._replace(log=s.log + (None,)), 'plain')
        if self.left(s, 'truncate') and s.log and not s.wire:
            yield 'the log loses its last record', self.spend(s._replace(log=s.log[:-1], lost=True), 'truncate')
        if self.left(s, 'loss') and s.entries != s.before:
            yield 'Redis loses its last write', self.spend(s._replace(entries=s.before, generation=s.generation + 1), 'loss')
        if self.left(s, 'flush') and any(s.entries):
            none = (None,) * len(s.entries)
            yield 'Redis loses all', self.spend(s._replace(entries=none, before=none, generation=s.generation + 1, flushed=True), 'flush')

    def come(self, s, p, w, k, conn):
        x = s.proxies[p]
        queue = tuple(q for q in x.queue if q[:2] != (w, k)) + ((w, k, conn),)      # R13: it joins
        if x.out is not None and x.out[:2] == (w, k):
            return s._replace(proxies=put(s.proxies, p, x._replace(out=(w, k, conn) + x.out[3:])))
        return s._replace(proxies=put(s.proxies, p, x._replace(queue=queue)))

    # ------------------------------------------------------------------ broker
    def execute(self, s, r):
        name, w, k = r
        rest = s._replace(wire=tuple(q for q in s.wire if q != r))
        t = rest._replace(log=s.log + ((w, k),))
        owner = next((p for p in (0, 1) if s.proxies[p].name == name and s.proxies[p].out and s.proxies[p].out[:2] == (w, k)), None)
        if owner is None:
            yield f'the broker appends r{k} of W{w}, for nobody', t
            yield f'r{k} of W{w} never reaches the broker', rest
            return
        x = s.proxies[owner]
        yield f'the broker appends r{k} of W{w} at {len(s.log)}', t._replace(proxies=put(s.proxies, owner, x._replace(out=x.out[:3] + (len(s.log),))))
        if self.left(s, 'lost'):
            x = x._replace(out=x.out[:3] + (-1,))
            yield f'the broker appends r{k} of W{w}, the answer is lost', self.spend(t._replace(proxies=put(s.proxies, owner, x)), 'lost')
            yield f'r{k} of W{w} is lost on its way', self.spend(rest._replace(proxies=put(s.proxies, owner, x)), 'lost')

    # ------------------------------------------------------------------ Redis
    def swap(self, s, p, x, entry):
        """The state after a swap of what P has read (or None), and whether it took place."""
        proxy = s.proxies[p]
        if proxy.generation != s.generation:                # R10: a new proxy instance with another name; clients retry
            fresh = Proxy(s.next, s.generation, None, (), None)
            return s._replace(proxies=put(s.proxies, p, fresh), next=s.next + 1), False
        held = proxy.held[1]
        if held != s.entries[x]:
            return s._replace(proxies=put(s.proxies, p, proxy._replace(held=(x, s.entries[x])))), False
        entry = (0 if held is None else held[0] + 1,) + entry
        t = s._replace(before=s.entries, entries=put(s.entries, x, entry), proxies=put(s.proxies, p, proxy._replace(held=(x, entry))))
        return t, True

    # ------------------------------------------------------------------ proxy
    def proxy(self, s, p):
        x = s.proxies[p]
        if x.generation != s.generation:
            yield f'P{p} notices the new life of Redis', self.swap(s, p, 0, ())[0]
        if x.out is not None and x.out[3] is not None:
            yield from self.end(s, p)
        elif x.out is None and x.queue:
            w, k, conn = x.queue[0]
            i = self.id_of(w)
            if conn != s.who[w][2] and not self.copies:
                yield f'P{p} drops r{k} of W{w}, its client has gone', self.drop(s, p)
            elif x.held is None or x.held[0] != i:
                yield f'P{p} reads the entry', s._replace(proxies=put(s.proxies, p, x._replace(held=(i, s.entries[i]))))
            else:
                yield from self.work(s, p, i, w, k, conn)

    def drop(self, s, p):
        return s._replace(proxies=put(s.proxies, p, s.proxies[p]._replace(queue=s.proxies[p].queue[1:])))

    def work(self, s, p, i, w, k, conn):
        x, seq = s.proxies[p], self.seq(s, w, k)
        entry = x.held[1]
        if entry is None or entry[1] != s.generation:
            if not all(y.generation == s.generation for y in s.proxies) or (s.wire and self.begin == 'end'):
                return                                      # R10, R6
            end = len(s.log)
            due = dict(zero=0, any=seq).get(self.begin, end % self.modulus)
            if entry is not None and self.begin == 'end':
                end, due = self.found(s, entry, end, due)
            yield f'P{p} begins: the log ends at {end}', self.swap(s, p, i, (s.generation, end, due, None))[0]
            return
        version, generation, end, due, intent = entry
        if intent is not None:
            if any(y.name == intent[0] for y in s.proxies):
                yield f'P{p} waits, and reads again', s._replace(proxies=put(s.proxies, p, x._replace(held=None)))
            elif not any(r[0] == intent[0] for r in s.wire):
                base = self.where(s, intent[1], intent[2])
                following = (end, due) if base is None else (base + 1, (self.seq(s, *intent[1:]) + 1) % self.modulus)
                yield f'P{p} takes the intent over: {base}', self.swap(s, p, i, (generation, *following, None))[0]
            return
        if self.place == 'compared' and end % self.modulus != due:
            t, swapped = self.swap(s, p, i, entry[1:])
            what = self.lies(s, w, k, s.aims[w][k], end) or 'F'
            yield f'P{p} r{k} of W{w}: the shard is fenced, {what}', self.tell(t, p, w, k, conn, what) if swapped else t
            return
        aim = s.aims[w][k]
        if self.epochs == 'raised' and k == 0 or (aim == end if self.full else seq == due):
            t, swapped = self.swap(s, p, i, (generation, end, due, (x.name, w, k)))
            if swapped:
                y = t.proxies[p]
                t = t._replace(wire=tuple(sorted(t.wire + ((x.name, w, k),))), proxies=put(t.proxies, p, y._replace(queue=y.queue[1:], out=(w, k, conn, None))))
            yield f'P{p} reserves r{k} of W{w}: {swapped}', t
            return
        if self.full:
            behind = aim < end
        else:
            behind = seq < due if self.order == 'plain' else 0 < (due - seq) % self.modulus <= self.modulus // 2
        what = 'X'
        if behind:
            at = aim if self.full else end - (due - seq) % self.modulus
            what = 'A' if self.same == 'numbers' else self.lies(s, w, k, at) or 'X'
        fences = len(s.log) != end if self.ahead == 'looked' else self.ahead == 'later' and not behind and len(s.log) > end
        if what == 'X' and self.place == 'compared' and fences:
            yield f'P{p} sees that the log ends at {len(s.log)}', self.swap(s, p, i, (generation, len(s.log), due, None))[0]
            return
        if self.confirmed_by == 'read':
            yield f'P{p} r{k} of W{w}: {what}', self.tell(s, p, w, k, conn, what)
            return
        t, swapped = self.swap(s, p, i, entry[1:])
        yield f'P{p} r{k} of W{w}: {what} if {swapped}', self.tell(t, p, w, k, conn, what) if swapped else t

    def lies(self, s, w, k, at, end=0):
        """What is reported of the record if it is found in the log. `end`: of a fenced partition, whose entry has what
        is right below it."""
        if 0 <= at < len(s.log) and s.log[at] == (w, k):
            return 'A'
        if 0 < end <= len(s.log) and s.log[end - 1] == (w, k):
            return 'E'
        for place in range(max(at, 0), len(s.log) if self.looks == 'on' else 0):
            r = s.log[place]
            if r == (w, k):
                return 'E'
            if r is not None and place % self.modulus == self.seq(s, *r):
                break
        return None

    def found(self, s, entry, end, due):
        """What is after the end of an unverified entry: a record that lies elsewhere than it was to fences the
        partition."""
        if self.place == 'compared' and entry[2] % self.modulus != entry[3]:
            return entry[2:4]
        if self.shorter == 'fenced' and end < entry[2]:
            return end, entry[3]
        for at, r in list(enumerate(s.log))[entry[2]:]:
            if self.place == 'compared' and r is not None and at % self.modulus != self.seq(s, *r):
                return at + 1, (self.seq(s, *r) + 1) % self.modulus
        return end, due

    def where(self, s, w, k):
        return next((at for at, r in enumerate(s.log) if r == (w, k)), None)

    def end(self, s, p):
        """The outcome of an append is known, or is looked for."""
        x = s.proxies[p]
        w, k, conn, base = x.out
        if base == -1:
            base = self.where(s, w, k)                      # R6
        i, seq = x.held[0], self.seq(s, w, k)
        held = x.held[1]
        if base is None:
            t, swapped = self.swap(s, p, i, (held[1], held[2], held[3], None))
            if swapped:
                y = t.proxies[p]
                t = t._replace(proxies=put(t.proxies, p, y._replace(out=None, queue=((w, k, conn),) + y.queue)))
            yield f'P{p} does not find r{k} of W{w}, and lets go', t
            return
        following = base + 1, (base + 1 if self.place == 'trusted' else seq + 1) % self.modulus
        t, swapped = self.swap(s, p, i, (held[1], *following, None))
        if swapped:
            t = t._replace(proxies=put(t.proxies, p, t.proxies[p]._replace(out=None)))
            what = 'A' if base % self.modulus == seq or self.place == 'trusted' else 'E'
            t = self.tell(t, p, w, k, conn, what, queued=False)
        yield f'P{p} commits r{k} of W{w} at {base}', t

    def tell(self, s, p, w, k, conn, what, queued=True):
        if queued:
            s = self.drop(s, p)
        done, status, now = s.who[w]
        if conn != now or status != 'W' or len(s.aims[w]) - 1 != k:
            return s
        s = s._replace(told=tuple(sorted(s.told + ((w, k, what),))))
        if what == 'A':
            status = 'D' if done + 1 >= self.records else 'R'
            return s._replace(who=put(s.who, w, (done + 1, status, now)))
        status = 'F' if what in 'FE' else 'G' if self.sleeps and w == 0 else 'R'
        return s._replace(who=put(s.who, w, (done, status, now)))

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        records = [r for r in s.log if r is not None]
        if len(records) != len(set(records)):
            return 'D TWICE'
        for w, k, what in s.told:
            aim = s.aims[w][k]
            if what == 'A' and not s.lost and not (aim < len(s.log) and s.log[aim] == (w, k)):
                return 'S SUCCESS, AND NOT AT THE EXPECTED OFFSET'
            if what in 'XF' and (w, k) in s.log:
                return 'C REFUSED, AND IN THE LOG'
        won = [s.aims[w][k] for w, k, what in s.told if what == 'A']
        if not s.flushed and len(won) != len(set(won)):
            return 'U TWO SUCCESSES FOR ONE OFFSET'
        if not s.flushed and not s.lost:
            wrong = next((at for at, r in enumerate(s.log) if r is not None and at != s.aims[r[0]][r[1]]), None)
            if wrong is not None and any(r is not None for r in s.log[wrong + 1:]):
                return 'V APPENDED TO A SHARD THAT IS NO LONGER ONE'
        return None

    def is_done(self, s):
        faults = s.lost or (self.foreign and None in s.log[self.start:])
        return all(status in 'DG' or (status == 'F' and faults) for _, status, _ in s.who)

    def show(self, s):
        return f'==> log={s.log} aims={s.aims} told={s.told} entries={s.entries}'
