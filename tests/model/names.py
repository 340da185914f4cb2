"""Rule R22: a producer name gives its instances one producer id, each with a higher epoch, and every older instance is
fenced.

A model of its own: one name, several instances of its producer that begin one after the other and all live on, two partitions. What is
appended is committed in the same step, and the entry of a producer id on a partition is what the log has of it (R2 to R10 are what the
other models are about), unless it has expired. Redis may lose its last writes or all of them; that begins another
data generation. The record of a name may go by itself, in the same data generation: it expires, or an operator deletes
it.

Safety    U  no two instances ever have the same producer id and epoch
          F  once a newer instance has its id, nothing of an older one is reserved (unless Redis has lost something)
          L  what was acknowledged to an instance is in the log, as its own     D  and once
Progress  T  from every reachable state, without any further fault, the newest instance comes to an end: all stored,
             or, if Redis has lost something or the name has expired, fenced
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # R22  the name's epoch is compared in the 'swap' that reserves | was 'read' before it | only the partition's own is: 'entry'
    fence='swap',
    # R22  the record of a name is of another data generation, or gone: the next instance gets a new 'id' | the next
    #      'epoch' (the first, if gone)
    after_loss='id',
    # R22  a higher epoch comes than the record has, so that lost its last writes: it is taken over, and the next instance gets a new 'id' |
    #      it is taken over and 'trusted'
    higher='id',
    # R22  every instance gets a new id, as its client raises the epoch by itself when it is fenced: 'own' | the name's: 'name'
    ids='name',
    # R22  after the last epoch: a new 'id' | epoch 0 again: 'wrap'
    overflow='id',
    # R22  what an id has on a partition expires when the name has another id, or is 'gone' (expired, or forgotten) |
    #      'alone'
    expires='gone',
    # R22  an instance that asks for a higher epoch and names its own (KIP-360) gets the same answer when it repeats
    #      that | it is refused
    repeats=True,
)
WORLD = dict(
    instances=2, batches=1, partitions=2,
    epoch_max=9,
    raises=False,       # clients raise their epoch by themselves after `INVALID_PRODUCER_EPOCH`
    asks=False,         # each instance asks for a higher epoch once, by its own id and epoch
)
FAULTS = dict(
    loss=0,         # Redis loses the last write of the name's record, and is known to have another data generation
    flush=0,        # Redis loses all
    expire=0,       # the state of one producer on one partition expires
    gone=0,         # the name's record expires, or an operator deletes it
    resend=0,       # an answer is lost, and the client sends the batch again
)

# record: None or (id, epoch, data generation, id and epoch that asked for a higher one or None). hist: what it was
# before, newest last. ids: so many were handed out. who: per instance None, or (id, epoch, stored per partition, first
# of them under this epoch per partition, status): L lives, R asks, F fenced. sent: requests on their way: (instance,
# id, epoch, sequence, partition, batch, checked). logs: per partition ((id, epoch, sequence, instance, batch), ..).
# cut: per (id, partition) what of the log has expired. lost: was anything? ended: has the record been gone? bad: F was
# broken
State = namedtuple('State', 'record hist generation ids who sent logs cut lost ended bad bud')


class Names(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        return State(None, (), 0, 0, (None,) * self.instances, (), ((),) * self.partitions, (), False, False, False, self.budget())

    def steps(self, s):
        n = sum(w is not None for w in s.who)
        if n < self.instances:
            yield f'I{n} begins', self.begin(s, n)
        for i, w in enumerate(s.who):
            if w is None or w[4] == 'F':
                continue
            if w[4] == 'R':
                t, told = self.ask(s, i)
                yield f'I{i} asks for a higher epoch', t._replace(who=put(t.who, i, told))
                if self.left(s, 'resend'):
                    yield f'I{i} asks for a higher epoch, the answer is lost', self.spend(t, 'resend')
                continue
            if self.asks and w[1] == 0 and not any(w[2]) and not any(r[0] == i for r in s.sent):
                yield f'I{i} wants a higher epoch', s._replace(who=put(s.who, i, w[:4] + ('R',)))
            for p in range(self.partitions):
                b = w[2][p]
                if b < self.batches and not any(r[0] == i and r[4] == p for r in s.sent):
                    r = (i, w[0], w[1], b - w[3][p], p, b, False)
                    yield f'I{i} sends b{b} to p{p}', s._replace(sent=tuple(sorted(s.sent + (r,))))
        for r in s.sent:
            yield from self.take(s, r)
        if self.left(s, 'loss') and s.hist:
            t = s._replace(record=s.hist[-1], hist=s.hist[:-1], generation=s.generation + 1, lost=True)
            yield 'Redis loses the last write', self.spend(t, 'loss')
        if self.left(s, 'flush') and s.hist:
            t = s._replace(record=None, hist=(), generation=s.generation + 1, lost=True)
            yield 'Redis loses all', self.spend(t, 'flush')
        if self.left(s, 'gone') and s.record is not None:
            yield 'the name expires', self.spend(s._replace(record=None, ended=True), 'gone')
        if self.left(s, 'expire'):
            for p in range(self.partitions):
                for x in sorted({r[0] for r in s.logs[p]}):
                    if self.expires == 'gone' and s.record is not None and s.record[0] == x:
                        continue
                    cut = dict(s.cut)
                    cut[x, p] = len(s.logs[p])
                    yield f'the state of id {x} on p{p} expires', self.spend(s._replace(cut=tuple(sorted(cut.items()))), 'expire')

    # ------------------------------------------------------------------ InitProducerId
    def write(self, s, record):
        return s._replace(record=record, hist=s.hist + (s.record,))

    def begin(self, s, i):
        s, x, epoch = self.issue(s)
        zeros = (0,) * self.partitions
        return s._replace(who=put(s.who, i, (x, epoch, zeros, zeros, 'L')))

    def issue(self, s, asked_with=None):
        old = s.record
        suspect = old is None or old[2] != s.generation
        last = old is not None and old[1] >= self.epoch_max
        if asked_with is None and self.ids == 'own' or (suspect and self.after_loss == 'id') or (last and self.overflow == 'id'):
            x, epoch, s = s.ids, 0, s._replace(ids=s.ids + 1)
        elif old is None:
            x, epoch = 0, 0
            s = s._replace(ids=max(1, s.ids))
        else:
            x, epoch = old[0], 0 if last else old[1] + 1
        return self.write(s, (x, epoch, s.generation, asked_with)), x, epoch

    def ask(self, s, i):
        """The state after it, and the instance when it has the answer."""
        w, record = s.who[i], s.record
        if self.repeats and record is not None and record[3] == w[:2]:
            return s, (record[0], record[1], w[2], w[2], 'L')
        if record is None or record[:2] != w[:2]:
            return s, w[:4] + ('F',)
        t, x, epoch = self.issue(s, asked_with=w[:2])
        return t, (x, epoch, w[2], w[2], 'L')

    # ------------------------------------------------------------------ a batch
    def entry(self, s, x, p):
        """What is stored of a producer id on a partition: epoch and the sequence that is due."""
        cut = dict(s.cut).get((x, p), 0)
        mine = [r for r in s.logs[p][cut:] if r[0] == x]
        return (mine[-1][1], mine[-1][2] + 1) if mine else None

    def take(self, s, r):
        i, x, epoch, seq, p, b, checked = r
        rest = s._replace(sent=tuple(q for q in s.sent if q != r))
        record = s.record
        if self.fence == 'read' and not checked:
            if record is not None and record[:2] == (x, epoch):
                yield f'it is seen that b{b} of I{i} is of the newest', rest._replace(sent=tuple(sorted(rest.sent + (r[:6] + (True,),))))
            else:
                yield f'b{b} of I{i} is fenced', self.told(rest, i, p, None)
            return
        if self.fence == 'swap' and (record is None or record[0] != x or epoch < record[1]):
            yield f'b{b} of I{i} is fenced by the name', self.told(rest, i, p, None)
            return
        if self.fence == 'swap' and epoch > record[1]:
            generation = s.generation if self.higher == 'trusted' else -1
            rest = self.write(rest, (x, epoch, generation, None))
        entry = self.entry(s, x, p)
        if entry is not None and epoch < entry[0]:
            yield f'b{b} of I{i} is fenced on p{p}', self.told(rest, i, p, None)
        elif entry is not None and epoch == entry[0] and seq < entry[1]:
            yield f'b{b} of I{i} is a duplicate on p{p}', self.told(rest, i, p, b)
        elif (0 if entry is None or epoch > entry[0] else entry[1]) != seq and not (entry is None and self.expires == 'alone'):
            yield f'b{b} of I{i} leaves a gap on p{p}', self.told(rest, i, p, None)
        else:
            newer = any(w is not None for w in s.who[i + 1:])
            t = rest._replace(logs=put(rest.logs, p, rest.logs[p] + ((x, epoch, seq, i, b),)), bad=rest.bad or (newer and not s.lost))
            yield f'b{b} of I{i} is stored on p{p}', self.told(t, i, p, b)
            if self.left(t, 'resend'):
                again = t._replace(sent=tuple(sorted(t.sent + (r[:6] + (False,),))))
                yield f'b{b} of I{i} is stored on p{p}, its answer is lost', self.spend(again, 'resend')

    def told(self, s, i, p, stored):
        """What an instance does with an answer; None: `INVALID_PRODUCER_EPOCH`."""
        x, epoch, done, first, status = s.who[i]
        if stored is None:
            if not self.raises:
                return s._replace(who=put(s.who, i, (x, epoch, done, first, 'F')))
            if epoch >= 2:
                return s._replace(who=put(s.who, i, (x, epoch, done, first, 'F')))     # it has been fenced often enough
            sent = tuple(r for r in s.sent if r[0] != i)
            return s._replace(sent=sent, who=put(s.who, i, (x, epoch + 1, done, done, status)))
        return s._replace(who=put(s.who, i, (x, epoch, put(done, p, max(done[p], stored + 1)), first, status)))

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        names = [w[:2] for w in s.who if w is not None]
        if len(names) != len(set(names)):
            return 'U TWO INSTANCES UNDER ONE EPOCH'
        if s.bad:
            return 'F AN OLDER INSTANCE IS NOT FENCED'
        for p in range(self.partitions):
            if len(s.logs[p]) != len({(r[0], r[1], r[3], r[4]) for r in s.logs[p]}):
                return 'D DUPLICATE'            # under another epoch a client makes the copy itself
            stored = [r[3:] for r in s.logs[p]]
            for i, w in enumerate(s.who):
                if w is not None and any((i, b) not in stored for b in range(w[2][p])):
                    return 'L LOST'
        return None

    def is_done(self, s):
        w = s.who[-1]
        return w is not None and (((s.lost or s.ended) and w[4] == 'F') or all(n >= self.batches for n in w[2]))

    def show(self, s):
        return f'==> record={s.record} instances={s.who} logs={s.logs}'
