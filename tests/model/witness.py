"""The witness rule (k) of R10 with its members and its barrier, joined with the whole model: when does nothing have to
be read again in a new Redis data generation?

members.py has the same protocol on a perfect log. Here entries, intents, retries, zombies and the log are those of the other
files; registrations, counters, verdicts and decisions are writes to Redis like any other, and can be lost with them. Proxies
begin registered and seen; one that crashes comes back as a newcomer.
"""
from collections import namedtuple

from model import PLACE, Model
from state import put

RULES = dict(
    # a proxy instance appends when 'all' others that live were seen to write after its registration | at once ('none')
    seen_by='all',
    # the decision needs the verdict of all that are 'found' registered in the older data generation | the 'own' one
    barrier='found',
    # one that is found registered and has ended: 'void' | 'ignored'
    ended='void',
    # who has come later has no verdict
    only_old=True,
    # a proxy instance that finds an acknowledged write of its own missing says so
    counter=True,
    # what was in flight continues only if its intent is found and the entry 'believed' | 'always' | 'never': in a new
    # data generation every proxy becomes a new proxy instance, as without a witness, and only the entries are believed
    resume='believed',
    # with 'never': a former instance's registration, which has its verdict, is 'kept' until the decision | 'removed' by
    # the next one
    verdicts='kept',
    # a registration is removed by its owner's 'last' write, when it ends in an orderly way | while it still 'works'
    goodbye='last',
)
WORLD = dict(
    newcomers=0,         # so many proxies have not registered yet
    goal=False,          # property U: an entry of an older data generation is used unread
)

# member of a proxy: phase 0 not registered, 1 registered, 2 may append; data generation it works under; an acknowledged
# write of it is missing; it waits for a decision
Member = namedtuple('Member', 'phase gen misses asks')
# registry in Redis: registrations {(proxy, proxy instance): (data generation, verdict)}, at whose last acknowledged
# write and last write which of them were there, decision on each data generation; the first two as sorted tuples of
# pairs
House = namedtuple('House', 'reg wrote cert')
# what one write replaces: entry of a producer (or -1: none), registry, writer, proxy instance, acknowledged
Undo = namedtuple('Undo', 'q old house p inc acked')


def with_item(pairs, key, item):
    rest = tuple(x for x in pairs if x[0] != key)
    return tuple(sorted(rest + ((key, item),))) if item is not None else rest


class Joined(Model):

    def __init__(self, **changes):
        rules = {k: changes.pop(k, v) for k, v in {**RULES, **WORLD}.items()}
        super().__init__(**changes)
        self.losses = (PLACE['loss'], PLACE['restart'])
        for k, v in rules.items():
            setattr(self, k, v)

    def first(self):
        s = super().first()
        names = tuple((p, 0) for p in range(self.newcomers, self.proxies))
        house = House(tuple((n, (0, 'ok')) for n in names), tuple((n, (names, names)) for n in names),
                      ('on',) + (None,) * (self.budget('loss') + self.budget('restart')))
        pr = tuple(x._replace(member=Member(2 if (p, 0) in names else 0, 0, False, False)) for p, x in enumerate(s.pr))
        return s._replace(house=house, pr=pr)

    def bad_state(self, s):
        if self.goal:
            used = any(e.egen < s.gen and e.intent and e.intent.gen == s.gen and not e.intent.whole for e in s.ent)
            return 'U USED UNREAD' if used else None
        return super().bad_state(s)

    # ------------------------------------------------------------------ Redis
    def there(self, s):
        return tuple(n for n, r in s.house.reg if r[0] == s.gen)

    def register_write(self, s, p, acked=True, q=-1, **kw):
        """Any write of p: it counts, and acknowledges what p wrote before."""
        name, old = (p, s.pr[p].inc), s.house
        s = s._replace(house=old._replace(**kw))
        there, before = self.there(s), dict(old.wrote).get(name, ((), ()))
        s = s._replace(house=s.house._replace(wrote=with_item(s.house.wrote, name, (there if acked else before[0], there))))
        undo = s.undo
        if self.left(s, 'loss'):
            undo = (undo + (Undo(q, s.ent[q] if q >= 0 else None, old, *name, acked),))[-self.undo:]
        return self.acknowledged(s._replace(undo=undo), p) if acked else s._replace(undo=undo)

    def write(self, s, p, q, entry, acked=True):
        if entry == s.ent[q]:
            return s
        s = self.register_write(self.outdated(s, q), p, acked, q)
        return s._replace(ent=put(s.ent, q, entry))

    def acknowledged(self, s, p):
        return s._replace(undo=tuple(u._replace(acked=True) if (u.p, u.inc) == (p, s.pr[p].inc) else u for u in s.undo))

    def lose(self, s, n):
        lost, pr = s.undo[len(s.undo) - n:], s.pr
        for u in reversed(lost):
            s = s._replace(house=u.house, ent=s.ent if u.q < 0 else put(s.ent, u.q, u.old))
            if u.acked and pr[u.p].inc == u.inc and pr[u.p].member.phase:
                pr = put(pr, u.p, pr[u.p]._replace(member=pr[u.p].member._replace(misses=True)))
        return s._replace(pr=pr, undo=(), gen=s.gen + 1)

    def redis(self, s):
        for label, t in super().redis(s._replace(bud=tuple(0 if i in self.losses else n for i, n in enumerate(s.bud)))):
            yield label, t._replace(bud=s.bud)
        if self.left(s, 'restart'):
            yield 'REDIS restarts, nothing lost', self.spend(self.lose(s, 0), 'restart')
        if self.left(s, 'loss'):
            for n in range(1, len(s.undo) + 1):
                yield f'REDIS loses its last {n} write(s)', self.spend(self.lose(s, n), 'loss')

    def suspect(self, s, q):
        return not self.believed(s, s.ent[q].egen)

    def believed(self, s, gen):
        return all(c == 'on' for c in s.house.cert[gen + 1:s.gen + 1])

    # ------------------------------------------------------------------ members
    def member(self, s, p, **kw):
        return self.setp(s, p, member=s.pr[p].member._replace(**kw))

    def register(self, s, p, verdict):
        """What another proxy instance wrote before this registration does not count as written after it."""
        name = (p, s.pr[p].inc)
        wrote = tuple((n, tuple(tuple(x for x in seen if x != name) for seen in both)) for n, both in s.house.wrote)
        s = s._replace(house=s.house._replace(wrote=wrote))
        return self.register_write(s, p, reg=with_item(s.house.reg, name, (s.gen, verdict)))

    def steps(self, s):
        for label, t in super().steps(s):
            yield label, self.settled(t)

    def settled(self, s):
        """What costs nothing is done at once: to read a decision, to see that one is seen."""
        for p, x in enumerate(s.pr):
            if x.member.asks and x.member.gen == s.gen and s.house.cert[s.gen]:
                s = self.adopt(s, p, s.house.cert[s.gen])
            m, there = s.pr[p].member, self.there(s)
            if m.phase == 1 and m.gen == s.gen and not m.asks and (p, x.inc) in there and self.is_seen(s, p, there):
                s = self.member(s, p, phase=2)
        return s

    def is_seen(self, s, p, there):
        wrote = dict(s.house.wrote)
        others = [(o, y.inc) for o, y in enumerate(s.pr) if o != p and y.member.phase and (o, y.inc) in there]
        return self.seen_by == 'none' or all((p, s.pr[p].inc) in wrote[n][0] for n in others)

    def proxy(self, s, p):
        x = s.pr[p]
        m = x.member
        if m.phase == 0:
            s2 = s
            if self.resume == 'never' and (s.house.cert[s.gen] or self.verdicts == 'removed'):      # in one write it takes its former instance's away
                reg = tuple(r for r in s.house.reg if r[0][0] != p or r[1][0] < s.gen)
                s2 = s._replace(house=s.house._replace(reg=reg))
            yield f'P{p} registers', self.member(self.register(s2, p, 'fresh'), p, phase=1, gen=s.gen, asks=s.gen > 0)
            return
        if m.gen == s.gen and not m.asks:
            yield from self.keep_house(s, p)
            yield from super().proxy(s, p)
            return
        if m.gen == s.gen:
            yield from self.decide_life(s, p)
        else:
            verdict = 'fresh' if m.gen < s.gen - 1 else 'miss' if m.misses and self.counter else 'ok'
            s2 = self.member(self.register(s, p, verdict), p, gen=s.gen, phase=1, asks=True)
            if x.w and (m.gen < s.gen - 1 or self.resume == 'never'):
                s2 = self.setp(s2, p, w=x.w._replace(valid=False))
            yield f'P{p} notices the new generation: {verdict}', s2
        if x.w and x.w.pc in ('wait', 'hw', 'settle', 'scan') or (x.w and x.w.pc == 'fwd' and m.gen != s.gen):
            yield from getattr(self, 'at_' + x.w.pc)(s, p, x.w)                 # what needs no Redis; R4: by its own lease

    def at_fwd(self, s, p, w):
        if s.pr[p].member.phase == 2 or not w.valid:
            yield from super().at_fwd(s, p, w)

    def keep_house(self, s, p):
        name, house = (p, s.pr[p].inc), s.house
        if dict(house.wrote).get(name, ((), ()))[0] != self.there(s):
            yield f'P{p} renews its lease', self.register_write(s, p)
        for n, r in house.reg:
            if r[0] == s.gen and s.pr[n[0]].inc != n[1]:
                yield f'P{p} removes the registration of P{n[0]}, incarnation {n[1]}', self.register_write(
                    s, p, reg=with_item(house.reg, n, None))

    def decide_life(self, s, p):
        """The barrier. The first decision counts."""
        reg, void = s.house.reg, None
        mine = dict(reg).get((p, s.pr[p].inc))
        if self.only_old and mine == (s.gen, 'fresh'):
            if any(y.member.phase and (y.member.gen != s.gen or dict(reg).get((o, y.inc)) != (s.gen, 'fresh'))
                   for o, y in enumerate(s.pr)):
                return
            void = 'nobody is left who could tell'
        for (o, inc), (gen, verdict) in reg:
            if verdict == 'fresh' and gen == s.gen or gen < s.gen - 1 or (self.barrier == 'own' and o != p):
                continue
            if gen == s.gen:
                void = void or (f'P{o} misses a write' if verdict == 'miss' else None)
            elif s.pr[o].inc == inc:
                return                                              # wait for its verdict, or the end of its lease
            elif self.ended == 'void':
                void = f'incarnation {inc} of P{o} has ended'
        s2 = self.register_write(s, p, cert=put(s.house.cert, s.gen, 'void' if void else 'on'))
        yield f'P{p} decides: ' + (f'all is suspect, {void}' if void else 'nothing is suspect'), s2

    def adopt(self, s, p, decision):
        s = self.member(s, p, asks=False, misses=False)
        if self.resume == 'never' and dict(s.house.reg).get((p, s.pr[p].inc), (0, 'fresh'))[1] != 'fresh':
            return self.newborn(self.setp(s, p, inc=s.pr[p].inc + 1, checkpoint=(0, None)), p)
        x, w = s.pr[p], s.pr[p].w
        if w:
            found = all(self.has_intent(s, p, w, t) and (self.resume == 'always' or self.believed(s, s.ent[t.q].egen)) for t in w.parts)
            w = w._replace(gen=s.gen) if decision == 'on' and w.valid and found else w._replace(valid=False)
        inbox = tuple(r._replace(gen=s.gen) if decision == 'on' and r.gen == s.gen - 1 else r for r in x.inbox)
        return self.setp(s, p, w=w, inbox=inbox)

    def has_intent(self, s, p, w, t):
        it = s.ent[t.q].intent
        return it is not None and (it.p, it.inc) == (p, w.inc) and (not t.bs or it.whole or (it.ep, it.lo) == (t.ep, t.lo))

    def process_faults(self, s, p):
        for label, t in super().process_faults(s, p):
            yield label, self.newborn(t, p) if t.pr[p].inc != s.pr[p].inc else t
        x, m = s.pr[p], s.pr[p].member
        works = x.w is not None or bool(x.inbox)
        if self.left(s, 'leave') and m.phase == 2 and m.gen == s.gen and not m.asks and (self.goodbye == 'works' or not works):
            s2 = self.spend(self.register_write(s, p, reg=with_item(s.house.reg, (p, x.inc), None)), 'leave')
            if works:
                yield f'P{p} says goodbye, but goes on', s2
                return
            for q, c in enumerate(s2.cl):
                s2 = self.disconnect(s2, q, (p + 1) % self.proxies) if c.conn == p else s2
            yield f'P{p} says goodbye, its clients go on at the next', self.newborn(self.setp(s2, p, inc=x.inc + 1, checkpoint=(0, None)), p)

    def newborn(self, s, p):
        return self.member(s, p, phase=0, gen=0, misses=False, asks=False)
