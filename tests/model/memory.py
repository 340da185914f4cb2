"""Rule R10 where Redis's memory goes back in time, and run_id and master_replid stay: only what is in the memory can tell.

A model of its own: two proxies, one batch whose answer may be lost, one moment to which the memory may return. The
memory has the number of its Redis data generation (`life`) and a count. What a proxy has to do with a batch is one
step, as the other models are about its parts: in its own data generation it believes the entry, of another one it reads
the log. Every proxy has one ordered connection: its heartbeat looks at number and count and renews its registration,
and what it swaps after the heartbeat names the new registration, before the replies have come. Then it counts. A
connection may end at any time; what was sent over it is executed or not.

Safety    G  the batch is not twice in the log
Progress  T  from every reachable state, without any further fault, the batch can still become acknowledged
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # R10 a proxy that sees no higher count than before begins another data generation | 'ignored'
    count='compared',
    # R10 a data generation is known by the number in the memory, too
    generation='life',
    # R10 the numbers 'rise', so a lower one is an earlier one | 'any' other one is believed
    lives='rise',
    # R10 a swap says which registration has to be there: that of the newest 'beat' | any that is 'there'
    registered='beat',
    # R10 a beat renews the registration only if it is that of the beat before: 'compared' | 'written'
    renewal='compared',
    # R10 a proxy counts once it has 'looked' and has seen nothing | 'at once'
    counts='looked',
    # R10 over a new connection a proxy is 'registered' before it counts | it has 'counted' before
    begins='registered',
)
WORLD = dict(undone=3)      # counts that each proxy has seen, at least, and a registration of its own, that are undone when the memory goes back
FAULTS = dict(
    back=1,     # the memory is what it was
    beats=5,    # heartbeats of all proxies (not a fault: so many are looked at)
    lost=1,     # the client hears nothing and asks either proxy
    cut=1,      # a connection to Redis ends
    crash=0,    # a proxy dies and comes back, and knows nothing
)

# memory: (life, count, registrations, entry): of each proxy the beat that is registered, 0: none; the entry: the
# data generation in which b was written, 0: it has none. newest: the highest `life` of all. log: how often b is in
# it. client: N to send, A acknowledged
State = namedtuple('State', 'memory newest pr log client bud')
# known: the highest (life, count) that it has seen. gen: 0 while it connects. beat: its newest. pc: '' nothing under
# way - 'looked' of a beat - 'registered' of a new connection - 'seen' 'counted' to hear the reply to its look or count
# - 'last' to be registered; reply: (life, count) that it will hear
Proxy = namedtuple('Proxy', 'known gen beat pc reply')
# what the memory was when both proxies had just connected, and will be again
OLD = 1, 2, (1, 1), 0
FRESH = Proxy((0, 0), 0, 0, '', None)


class Memory(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        proxies = Proxy((1, 1), 1, 1, '', None), Proxy((1, 2), 1, 1, '', None)
        return State(OLD, 1, proxies, 0, 'N', self.budget())

    def steps(self, s):
        if self.left(s, 'back') and all(self.has_seen(s, p, x) for p, x in enumerate(s.pr)):
            yield 'REDIS: its memory goes back', self.spend(s._replace(memory=OLD), 'back')
        for p, x in enumerate(s.pr):
            yield from self.connects(s, p, x) if not x.gen else self.in_use(s, p, x)
            if x.gen and x.pc != 'looked' and s.client == 'N':
                yield from self.works(s, p, x)
            if self.left(s, 'cut'):
                yield f'the connection of P{p} ends', self.spend(self.setp(s, p, x._replace(gen=0, pc='')), 'cut')
            if self.left(s, 'crash'):
                life, count, there, entry = s.memory
                memory = life, count, put(there, p, 0), entry
                yield f'P{p} CRASHES', self.spend(s._replace(memory=memory, pr=put(s.pr, p, FRESH._replace(beat=x.beat))), 'crash')
        if s.client == 'A' and self.left(s, 'lost'):
            yield 'C has heard nothing', self.spend(s._replace(client='N'), 'lost')

    def has_seen(self, s, p, x):
        """Is this one of those for which the memory may go back?"""
        life, count, there, _ = OLD
        return self.undone == 0 or (x.beat > there[p] and x.known >= (life, count + self.undone))

    def setp(self, s, p, x):
        return s._replace(pr=put(s.pr, p, x))

    # ------------------------------------------------------------------ what a proxy sends to Redis
    def written(self, s, p, beat):
        life, count, there, entry = s.memory
        return s._replace(memory=(life, count, put(there, p, beat), entry))

    def looks(self, s, p, x, pc):
        """It asks for the count, or raises it at once."""
        if self.counts == 'at once':
            return self.raises(s, p, x, pc)
        return self.setp(s, p, x._replace(pc=pc, reply=s.memory[:2]))

    def raises(self, s, p, x, pc):
        life, count, there, entry = s.memory
        return self.setp(s._replace(memory=(life, count + 1, there, entry)), p, x._replace(pc=pc, reply=(life, count + 1)))

    def connects(self, s, p, x):
        if x.pc == '' and self.begins == 'registered':
            yield f'P{p} is registered', self.setp(self.written(s, p, x.beat + 1), p, x._replace(beat=x.beat + 1, pc='registered'))
        elif x.pc in ('', 'registered'):
            yield f'P{p} looks at {s.memory[:2]}', self.looks(s, p, x, 'counted' if self.counts == 'at once' else 'seen')
        elif x.pc == 'last':
            yield f'P{p} is registered', self.setp(self.written(s, p, x.beat + 1), p, x._replace(beat=x.beat + 1, pc='', gen=x.reply[0]))
        else:
            yield from self.hears(s, p, x)

    def in_use(self, s, p, x):
        if x.pc == '' and self.left(s, 'beats'):
            yield f'P{p} beats, looks at {s.memory[:2]}', self.spend(self.looks(s, p, x, 'looked'), 'beats')
        elif x.pc == 'looked':
            fits = s.memory[2][p] == x.beat or (self.renewal == 'written' and s.memory[2][p])
            t = self.written(s, p, x.beat + 1) if fits else s
            pc = 'counted' if self.counts == 'at once' else 'seen'
            yield f'P{p} renews: {bool(fits)}', self.setp(t, p, x._replace(pc=pc, beat=x.beat + 1))
        elif x.pc:
            yield from self.hears(s, p, x)

    def hears(self, s, p, x):
        """It has the reply to its look, or to its count."""
        if self.is_behind(x):
            newest = s.newest + 1
            t = s._replace(newest=newest, memory=(newest, 0) + s.memory[2:])
            yield f'P{p} sees that the memory went back', self.setp(t, p, x._replace(known=(newest, 0), gen=0, pc='registered'))
        elif x.pc == 'seen':
            yield f'P{p} counts', self.raises(s, p, x, 'counted')
        elif not x.gen and self.begins == 'counted':
            yield f'P{p} knows the life {x.reply[0]}', self.setp(s, p, x._replace(known=x.reply, pc='last'))
        else:
            gen = x.reply[0] if x.gen in (0, x.reply[0]) else 0
            yield f'P{p} knows the life {x.reply[0]}', self.setp(s, p, x._replace(known=x.reply, pc='', gen=gen))

    def is_behind(self, x):
        if self.count == 'ignored' or (self.lives == 'any' and x.reply[0] != x.known[0]):
            return False
        return x.reply < x.known or (x.pc == 'counted' and x.reply == x.known)

    # ------------------------------------------------------------------ the batch
    def works(self, s, p, x):
        life, count, there, entry = s.memory
        fits = there[p] == x.beat if self.registered == 'beat' else there[p]
        if not fits:
            yield f'P{p} is refused, connects anew', self.setp(s, p, x._replace(gen=0, pc=''))
            return
        gen = x.gen if self.generation == 'life' else 1
        # an absent entry of another data generation is unverified, too
        is_stored = entry == gen or (s.log and (entry != 0 or gen != 1))
        how = 'has' if is_stored else 'appends'
        yield f'P{p} {how} b', s._replace(memory=(life, count, there, gen), log=s.log + (not is_stored), client='A')

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        return 'G DUPLICATE' if s.log > 1 else None

    def is_done(self, s):
        return s.client == 'A'

    def show(self, s):
        return f'==> memory={s.memory}, b is in the log {s.log} times, proxies={s.pr}'
