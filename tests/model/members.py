"""The witness rule (k) of R10 with its members and its barrier: when may entries of an older Redis data generation be
used unread?

A model of its own: proxy instances that register in Redis, reserve, append and commit; one entry; a Redis whose last
writes can be lost, registrations and verdicts among them. Batches are counted: the log has `truth` of them, the entry
says how many it knows of. The log is perfect here; what is asked is only whether an entry may be believed.

Safety    W  no instance appends by an entry that has forgotten an append
Progress  T  as long as a proxy lives or can start, all batches can still be appended, without any further fault
Use       U  (with `goal`) entries of a data generation that is over are used unread
"""
import time
from collections import defaultdict, deque, namedtuple

RULES = dict(
    # R10 without a witness: everything is unverified after every change
    plain=False,
    # whose counter must have risen since a registration before its owner appends: 'one' other that lives | 'all' that live |
    # 'none'; it is seen to rise 'twice' (so the first of these writes was acknowledged) | 'once'
    seen_by='all', rises='twice',
    # whose verdict on the lost data generation the decision needs: all that are 'found' registered in it | the 'own' |
    # of all that are found 'alive' at the moment, their leases being lost as well
    barrier='found',
    # one that is found registered and whose lease is over: 'void' nothing can be believed | 'ignored'
    ended='void',
    # a registration is removed by its owner's last write ('last') | by an earlier one ('early')
    goodbye='last',
    # others remove the registration of one whose lease is over ('ended') | of one that may still live ('any') | never (None)
    clean='ended',
    # only an instance that was there in the older data generation decides on it
    only_old=True,
    # an instance that finds an acknowledged write missing says so
    counter=True,
    # after the decision an owner continues with its open intent if it finds it there and it can be 'believed' |
    # 'always'
    resume='believed',
    # after a decision an instance has to be seen again before it appends
    again=True,
    # (k, 4) the owner of an open intent that finds it as it left it continues, whatever is decided on all others
    own=False,
    # entries are resolved only when nobody can append any more by a right of an older data generation
    grace=True,
)
WORLD = dict(n=3, batches=1, undo=3, goal=False)
FAULTS = dict(crash=0, loss=0, leave=0, slow=0)

# phase: 0 not started, 1 registered, 2 may append, 3 ended, 4 ended with a goodbye. gen: the one it works under. misses: a write
# of it that was acknowledged is lost. hold: None, (sequence, appended, waits for the reply to its commit). asks: waits for a decision
Proc = namedtuple('Proc', 'phase gen misses hold asks')
# reg: per instance None or (data generation, verdict). wrote: per instance the registrations that were there at its
# last write that was acknowledged, and at its last one (bit sets). cert: per data generation None, 'on', 'void'. entry:
# (batches, owner or -1, gen)
Redis = namedtuple('Redis', 'reg wrote cert entry')
# undo: last writes: (Redis before, writer, acknowledged)
State = namedtuple('State', 'pr redis undo gen truth bad bud')
UP = (1, 2)
CRASH, LOSS, LEAVE, SLOW = range(4)


def put(t, i, v):
    return t[:i] + (v,) + t[i + 1:]


class Members:
    forever = notice = False                   # Model has these: which search is asked for

    def __init__(self, **changes):
        unknown = set(changes) - set(RULES) - set(WORLD) - set(FAULTS)
        assert not unknown, unknown
        for k, v in {**RULES, **WORLD, **FAULTS, **changes}.items():
            setattr(self, k, v)

    def first(self):
        n = self.n
        redis = Redis((None,) * n, ((0, 0),) * n, ('on',) + (None,) * self.loss, (0, -1, 0))
        return State((Proc(0, 0, False, None, False),) * n, redis, (), 0, 0, False, (self.crash, self.loss, self.leave, self.slow))

    # ------------------------------------------------------------------ Redis
    def write(self, s, i, acked=True, **kw):
        """A write of i. Its reply acknowledges all that it wrote before."""
        new = s.redis._replace(**kw)
        there = sum(1 << j for j, r in enumerate(new.reg) if r and r[0] == s.gen)
        new = new._replace(wrote=put(new.wrote, i, (there if acked else new.wrote[i][0], there)))
        undo = (s.undo + ((s.redis, i, acked),))[-self.undo:] if s.bud[LOSS] else ()
        if acked:
            undo = tuple((before, j, sure or j == i) for before, j, sure in undo)
        return s._replace(redis=new, undo=undo)

    def register(self, s, i, verdict):
        """What another instance wrote before this registration does not count as written after it."""
        s = s._replace(redis=s.redis._replace(wrote=tuple((a & ~(1 << i), b & ~(1 << i)) for a, b in s.redis.wrote)))
        return self.write(s, i, reg=put(s.redis.reg, i, (s.gen, verdict)))

    def proc(self, s, i, **kw):
        return s._replace(pr=put(s.pr, i, s.pr[i]._replace(**kw)))

    def spend(self, s, k):
        return s._replace(bud=put(s.bud, k, s.bud[k] - 1))

    def lose(self, s, k):
        pr = s.pr
        for _, i, acked in s.undo[len(s.undo) - k:]:
            if acked and pr[i].phase in UP:
                pr = put(pr, i, pr[i]._replace(misses=True))
        redis = s.undo[-k][0] if k else s.redis
        return s._replace(pr=pr, redis=redis, undo=s.undo[:len(s.undo) - k] if s.bud[LOSS] > 1 else (), gen=s.gen + 1)

    def is_seen(self, s, i):
        others = [j for j, y in enumerate(s.pr) if j != i and y.phase in UP and s.redis.reg[j] and s.redis.reg[j][0] == s.gen]
        said = [j for j in others if s.redis.wrote[j][self.rises == 'once'] >> i & 1]
        return self.seen_by == 'none' or not others or bool(said and self.seen_by == 'one') or len(said) == len(others)

    # ------------------------------------------------------------------ steps
    def steps(self, s):
        for label, t in self.moves(s):
            yield label, self.settled(t)

    def settled(self, s):
        """What costs nothing is done at once: to read a decision, to see that one is seen."""
        for i, x in enumerate(s.pr):
            if x.phase in UP and x.gen == s.gen and x.asks and s.redis.cert[s.gen]:
                s = self.adopt(s, i, s.redis.cert[s.gen])
            x, r = s.pr[i], s.redis.reg[i]
            if x.phase == 1 and x.gen == s.gen and not x.asks and r and r[0] == s.gen and self.is_seen(s, i):
                s = self.proc(s, i, phase=2)
        return s

    def moves(self, s):
        for i, x in enumerate(s.pr):
            if x.phase == 0 and (i == 0 or s.pr[i - 1].phase):         # they are alike, and start in this order
                s2 = self.register(self.proc(s, i, phase=1, gen=s.gen, asks=not self.plain and s.gen > 0), i, 'fresh')
                yield f'I{i} registers', s2
            if x.phase not in UP:
                continue
            if x.gen != s.gen:
                yield from self.new_generation(s, i)
            elif x.asks:
                yield from self.decide(s, i)
            else:
                yield from self.work(s, i)
            if x.hold and not x.hold[1] and not x.hold[2] and x.phase == 2 and not x.asks:
                n = x.hold[0]                                           # R4: by its lease, whatever has become of Redis
                s2 = self.proc(s, i, hold=(n, True, False))._replace(truth=max(s.truth, n + 1), bad=s.truth > n)
                yield f'I{i} appends batch {n}' + (' AGAIN' if s2.bad else ''), s2
            if s.bud[CRASH]:
                yield f'I{i} CRASHES', self.spend(self.proc(s, i, phase=3, gen=0, misses=False, hold=None, asks=False), CRASH)
        if s.bud[LOSS]:
            for k in range(len(s.undo) + 1):
                yield f'REDIS loses its last {k} write(s)', self.spend(self.lose(s, k), LOSS)

    def new_generation(self, s, i):
        """Its counter tells whether an acknowledged write of it is missing. It registers again, with its verdict."""
        x = s.pr[i]
        late = self.plain or x.gen < s.gen - 1
        verdict = 'fresh' if late else 'miss' if x.misses and self.counter else 'ok'
        hold = None if late else x.hold
        s2 = self.proc(s, i, gen=s.gen, asks=not self.plain, phase=1 if self.again else x.phase, hold=hold)
        yield f'I{i} notices the new generation: {verdict}', self.register(s2, i, verdict)

    def decide(self, s, i):
        """The barrier. The first decision counts."""
        reg, void = s.redis.reg, None
        if self.only_old and reg[i] == (s.gen, 'fresh'):
            if not any(x.phase in UP and (x.gen != s.gen or reg[j] != (s.gen, 'fresh')) for j, x in enumerate(s.pr)):
                s2 = self.write(s, i, cert=put(s.redis.cert, s.gen, 'void'))
                yield f'I{i} decides: all is suspect, nobody is left who could tell', s2
            return
        for j, r in enumerate(reg):
            if r is None or r == (s.gen, 'fresh') or r[0] < s.gen - 1 or (self.barrier == 'own' and j != i):
                continue
            if r[0] == s.gen:
                void = void or (f'I{j} misses a write' if r[1] == 'miss' else None)
            elif s.pr[j].phase in UP:
                if self.barrier == 'found':
                    return                                              # wait for its verdict, or the end of its lease
            elif self.ended == 'void' and self.barrier == 'found':
                void = f'I{j} has ended'
        s2 = self.write(s, i, cert=put(s.redis.cert, s.gen, 'void' if void else 'on'))
        yield f'I{i} decides: ' + (f'all is suspect, {void}' if void else 'nothing is suspect'), s2

    def adopt(self, s, i, decision):
        x, redis = s.pr[i], s.redis
        s = self.proc(s, i, asks=False, misses=False)
        there = redis.entry[:2] == ((x.hold or [0])[0], i)
        if not x.hold or (decision == 'on' and (self.resume == 'always' or (there and self.believed(s, redis.entry[2])))):
            return s
        if self.own and there and not x.hold[2]:
            return self.write(s, i, entry=redis.entry[:2] + (s.gen,))
        return self.proc(s, i, hold=None)

    def work(self, s, i):
        redis = s.redis
        there = sum(1 << j for j, r in enumerate(redis.reg) if r and r[0] == s.gen)
        if redis.wrote[i][0] != there:
            yield f'I{i} renews its lease', self.write(s, i)
            if s.bud[SLOW] and redis.wrote[i][1] != there:
                yield f'I{i} renews its lease, the reply is lost', self.spend(self.write(s, i, acked=False), SLOW)
        for j, y in enumerate(s.pr):
            if self.clean and j != i and redis.reg[j] and redis.reg[j][0] == s.gen and (y.phase > 2 or self.clean == 'any'):
                yield f'I{i} removes the registration of I{j}', self.write(s, i, reg=put(redis.reg, j, None))
        if s.pr[i].phase == 2:
            if s.bud[LEAVE] and redis.reg[i] and (self.goodbye == 'early' or not s.pr[i].hold):
                s2 = self.spend(self.write(s, i, reg=put(redis.reg, i, None)), LEAVE)
                gone = dict() if self.goodbye == 'early' else dict(phase=4, gen=0)
                yield f'I{i} says goodbye' + (', but goes on' if self.goodbye == 'early' else ''), self.proc(s2, i, **gone)
            yield from self.sequence(s, i)

    def believed(self, s, gen):
        if self.plain or gen == s.gen:
            return gen == s.gen
        return all(c == 'on' for c in s.redis.cert[gen + 1:s.gen + 1])

    def sequence(self, s, i):
        """One batch after the other: reserve, append, commit; what is open or unverified is looked for in the log."""
        x = s.pr[i]
        n, owner, gen = s.redis.entry
        if x.hold:
            if (n, owner) != (x.hold[0], i):
                yield f'I{i} finds its intent gone', self.proc(s, i, hold=None)
            elif x.hold[1]:
                yield f'I{i} commits', self.proc(self.write(s, i, entry=(n + 1, -1, gen)), i, hold=None)
                if s.bud[SLOW] and not x.hold[2]:
                    s2 = self.spend(self.write(s, i, acked=False, entry=(n + 1, -1, gen)), SLOW)
                    yield f'I{i} commits, the reply is lost', self.proc(s2, i, hold=(n, True, True))
            return
        if not self.believed(s, gen):
            if not (self.grace and any(y.phase in UP and y.hold and (y.gen != s.gen or y.asks) for y in s.pr)):
                yield f'I{i} finds a suspect entry, reads the log: {s.truth}', self.write(s, i, entry=(s.truth, -1, s.gen))
        elif owner >= 0 and (s.pr[owner].phase > 2 or owner == i):
            yield f'I{i} takes over the intent of I{owner}, reads the log: {s.truth}', self.write(s, i, entry=(s.truth, -1, s.gen))
        elif owner < 0 and n < self.batches:
            yield f'I{i} reserves batch {n}', self.proc(self.write(s, i, entry=(n, i, gen)), i, hold=(n, False, False))

    # ------------------------------------------------------------------ searches
    def used_unread(self, s):
        return s.gen and s.redis.entry[2] < s.gen and s.redis.cert[s.gen] == 'on' and any(x.hold and x.gen == s.gen for x in s.pr)

    def finished(self, s):
        return s.truth >= self.batches or not any(x.phase in (0, 1, 2) for x in s.pr)

    def check(self, limit=3_000_000):
        began = time.process_time()
        first = self.first()
        origin, todo, back, good = {first: None}, deque([first]), defaultdict(list), []
        while todo:
            s = todo.popleft()
            if self.finished(s):
                good.append(s)
            for label, t in self.steps(s):
                if t.bud == s.bud:
                    back[t].append(s)
                if t in origin:
                    continue
                origin[t] = (s, label)
                if t.bad or (self.goal and self.used_unread(t)):
                    verdict = 'W APPENDED ON THE WORD OF A FORGETFUL ENTRY' if t.bad else 'U USED UNREAD'
                    return verdict, len(origin), time.process_time() - began, self.trace(origin, t)
                todo.append(t)
            if len(origin) > limit:
                return 'LIMIT (no violation so far)', len(origin), time.process_time() - began, []
        reach = set(good)
        while good:
            for y in back[good.pop()]:
                if y not in reach:
                    reach.add(y)
                    good.append(y)
        trap = next((s for s in origin if s not in reach), None)
        took = time.process_time() - began
        return ('HOLDS', len(origin), took, []) if trap is None else ('T STUCK', len(origin), took, self.trace(origin, trap))

    def trace(self, origin, s):
        out = [f'==> log={s.truth} entry={s.redis.entry} decisions={s.redis.cert}']
        while origin[s] is not None:
            s, label = origin[s]
            out.append(label)
        return out[::-1]
