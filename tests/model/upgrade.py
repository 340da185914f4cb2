"""Rule R21: the brokers of a running cluster are upgraded to ones that give idempotence, and the proxies hand producers over to them.

A model of its own: one producer with up to two batches in flight, two proxies with one Redis, two brokers that have the same log. Each broker
is restarted once in the new format, in which it loses the markers of the old way ('w'), takes a batch as it came ('i') and knows the last one
of the producer by its log; of a producer that it does not know it takes any batch (KIP-360). A request dies with the life of the broker that
it was sent to. A proxy that makes no step is one that is paused, or that has not noticed.

Safety    G  no batch is twice in the log
          I2 the log has them in order
          I3 an acknowledged batch is in the log
          E  no batch fails (43, 45): nothing is missing, and nobody is at fault
Progress  T  from every reachable state, without any further fault, all batches can still become acknowledged
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # the old way to a broker of the new format: 'never' | as if it were an old one ('sent')
    old_way='never',
    # handed over when 'all' brokers have the new format | when the leader has it ('one')
    when='all',
    # an open intent is resolved first
    resolve=True,
    # the entry is written as handed over before the first batch goes as it came
    fence=True,
    # a batch that the entry has is a duplicate
    entry=True,
    # a batch behind the one that is due, of a producer that the broker does not know: 'later' | 'pass' it on
    unknown='later',
    # the same of a producer that the broker knows: it decides ('pass') | the entry does ('45')
    known='pass',
    # bytes pass unread when no batch of the old way comes again any more ('horizon') | when its first batch is with the brokers, too ('known')
    # | at 'once' | never (None)
    native='known',
)
WORLD = dict(N=2, done=0)   # done: so many of them are stored in the old way and acknowledged before it begins
FAULTS = dict(broken=1, reconnect=1, stall=0, refuse=0, move=0, rollback=0)

# log: (kind, batch), ..; 'u': the old way without its marker. brokers: (format, life). st: of each batch N to be sent, F at the proxy, A
# acknowledged, X failed. conn, cid: the client's proxy and connection. entry: (version, next, intent, handed over); intent: (batch, owner's
# proxy and incarnation, broker, life). modes: proxy, over, native. lives: the incarnation of each proxy. flows: per proxy None or (pc,
# batch, cid, entry as known). pends: per proxy None or (kind, batch, broker, life, its flow still waits)
State = namedtuple('State', 'log brokers lead st conn cid entry modes lives flows pends bud')


class Upgrade(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        stored = tuple(('w', b) for b in range(self.done))
        st = 'A' * self.done + 'N' * (self.N - self.done)
        return State(stored, (('o', 0), ('o', 0)), 0, st, 0, 0, (0, self.done, None, False), ('proxy', 'proxy'), (0, 0), (None, None),
                     (None, None), self.budget())

    # ------------------------------------------------------------------ everything around the proxies
    def steps(self, s):
        for b in range(self.N):
            if s.st[b] == 'N' and all(x in 'FA' for x in s.st[:b]):
                yield f'C sends b{b} to P{s.conn}', s._replace(st=s.st[:b] + 'F' + s.st[b + 1:])
        if 'F' in s.st and self.left(s, 'reconnect'):
            for p in (0, 1):
                t = s._replace(st=s.st.replace('F', 'N'), cid=s.cid + 1, conn=p)
                yield f'C loses its connection, goes to P{p}', self.spend(t, 'reconnect')
        for i in (0, 1):
            form, life = s.brokers[i]
            if form == 'o' and life == 0:
                yield f'B{i} is restarted in the new format', s._replace(brokers=put(s.brokers, i, ('n', 1)))
            elif form == 'n' and self.left(s, 'rollback'):
                yield f'B{i} is restarted in the old format', self.spend(s._replace(brokers=put(s.brokers, i, ('o', life + 1))), 'rollback')
            elif form == 'o':
                yield f'B{i} is restarted in the new format again', s._replace(brokers=put(s.brokers, i, ('n', life + 1)))
        if self.left(s, 'move'):
            yield f'B{1 - s.lead} leads', self.spend(s._replace(lead=1 - s.lead), 'move')
        for p in (0, 1):
            yield from self.broker_steps(s, p)
            yield from self.proxy_steps(s, p)

    def last_known(self, s):
        """The last batch that the brokers know of the producer; they have it from the log."""
        return max((b for kind, b in s.log if kind == 'i'), default=None)

    def execute(self, s, kind, b):
        """What the leader does with a batch: the log, and 'ack', 'refused' (not the leader, or it stores another format) or 'X'."""
        form, last = s.brokers[s.lead][0], self.last_known(s)
        if kind == 'w':
            return s.log + (('w' if form == 'o' else 'u', b),), 'ack'
        if form == 'o':
            return s.log, 'X'                                                  # 43
        if ('i', b) in s.log:
            return s.log, 'ack'
        return (s.log + (('i', b),), 'ack') if last is None or b == last + 1 else (s.log, 'X')   # 45

    def broker_steps(self, s, p):
        if s.pends[p] is None:
            return
        kind, b, broker, life, waits = s.pends[p]
        rest = s._replace(pends=put(s.pends, p, None))
        if s.brokers[broker][1] != life:
            yield f'the request of P{p} has died with B{broker}', self.into(rest, p, 'doubt') if waits else rest
            return
        if broker != s.lead:
            yield f'B{broker} does not lead: refused', self.into(rest, p, 'refused') if waits else rest
        else:
            if self.left(s, 'refuse'):
                yield f'B{broker} refuses b{b} this time', self.spend(self.into(rest, p, 'refused') if waits else rest, 'refuse')
            log, what = self.execute(s, kind, b)
            t = rest._replace(log=log)
            yield f'B{broker} takes b{b} ({kind}): {what}', self.into(t, p, what) if waits else t
        if waits and self.left(s, 'broken'):
            t = s._replace(pends=put(s.pends, p, (kind, b, broker, life, False)))
            yield f'the connection of P{p} to B{broker} breaks', self.spend(self.into(t, p, 'doubt'), 'broken')

    # ------------------------------------------------------------------ a proxy
    def into(self, s, p, pc, **more):
        _, b, cid, entry = s.flows[p]
        return s._replace(flows=put(s.flows, p, (pc, b, cid, more.get('entry', entry))))

    def end(self, s, p, x):
        """The flow ends, its client gets x, if it is still there."""
        _, b, cid, _ = s.flows[p]
        there = cid == s.cid and s.st[b] == 'F'
        return s._replace(flows=put(s.flows, p, None), st=s.st[:b] + x + s.st[b + 1:] if there else s.st)

    def swap(self, s, p, after):
        """The state after a swap by what the flow knows, None if somebody else has written."""
        known = s.flows[p][3]
        if known[0] != s.entry[0]:
            return None
        entry = (known[0] + 1, *after)
        return self.into(s._replace(entry=entry), p, s.flows[p][0], entry=entry)

    def proxy_steps(self, s, p):
        mode, w = s.modes[p], s.flows[p]
        if mode == 'proxy' and (s.brokers[0][0] == s.brokers[1][0] == 'n' or (self.when == 'one' and s.brokers[s.lead][0] == 'n')):
            yield f'P{p} hands over', s._replace(modes=put(s.modes, p, 'over'))
        if mode == 'over' and w is None and self.may_pass(s):
            yield f'P{p} passes bytes', s._replace(modes=put(s.modes, p, 'native'))
        if self.left(s, 'stall'):
            lives = put(s.lives, p, s.lives[p] + 1)
            yield f'P{p} loses its lease', self.spend(s._replace(lives=lives, flows=put(s.flows, p, None), pends=self.orphan(s, p)), 'stall')
        if w is None:
            for b in range(self.N):
                if s.conn == p and s.st[b] == 'F':
                    if mode == 'native' and 'F' not in s.st[:b]:
                        yield from self.pass_bytes(s, p, b)
                    elif mode != 'native':
                        yield f'P{p} reads the entry for b{b}', s._replace(flows=put(s.flows, p, ('decide', b, s.cid, s.entry)))
        else:
            yield from getattr(self, 'at_' + w[0])(s, p, *w[1:])

    def orphan(self, s, p):
        """A request that is out stays out; nobody waits for it."""
        return s.pends if s.pends[p] is None else put(s.pends, p, (*s.pends[p][:4], False))

    def may_pass(self, s):
        old = [b for kind, b in s.log if kind in 'wu']
        if self.native == 'once':
            return True
        if self.native is None or any(s.st[b] != 'A' for b in old) or s.entry[2] is not None:
            return False
        return self.native == 'horizon' or self.last_known(s) is not None

    def pass_bytes(self, s, p, b):
        if s.brokers[s.lead][0] == 'o':
            yield f'P{p} does not serve B{s.lead}', s._replace(st=s.st[:b] + 'N' + s.st[b + 1:])
            return
        log, what = self.execute(s, 'i', b)
        yield f'P{p} passes b{b}: {what}', s._replace(log=log, st=s.st[:b] + what[0].upper() + s.st[b + 1:])
        if self.left(s, 'refuse'):
            yield f'P{p} passes b{b}, refused this time', self.spend(s._replace(st=s.st[:b] + 'N' + s.st[b + 1:]), 'refuse')

    def at_decide(self, s, p, b, cid, entry):
        _, due, intent, handed = entry
        over, form = s.modes[p] == 'over', s.brokers[s.lead][0]
        if cid != s.cid:
            yield f'P{p} drops b{b}, its client has gone', self.end(s, p, 'N')
        elif intent is not None and (self.resolve or not over):
            owner, life = intent[1]
            if owner != p and s.lives[owner] == life:
                yield f'P{p}: the intent is of P{owner}, which lives: later', self.end(s, p, 'N')
            else:
                yield f'P{p} resolves the open intent first', self.into(s, p, 'resolve')
        elif b < due and (self.entry or not over):
            yield f'P{p}: b{b} is a duplicate', self.end(s, p, 'A')
        elif over and form == 'o' and self.when == 'all':
            yield f'P{p} does not serve B{s.lead}', self.end(s, p, 'N')
        elif over and self.last_known(s) is not None:
            if b > due and self.known == '45':
                yield f'P{p}: 45 for b{b}', self.end(s, p, 'X')
            else:
                yield f'P{p}: B{s.lead} knows the producer', self.into(s, p, 'pass')
        elif over and b > due and self.unknown == 'later':
            yield f'P{p}: B{s.lead} does not know the producer: later', self.end(s, p, 'N')
        elif over and self.fence and not handed:
            t = self.swap(s, p, (due, intent, True))
            yield f'P{p} writes that the producer is handed over', self.end(s, p, 'N') if t is None else self.into(t, p, 'pass')
        elif over:
            yield f'P{p}: B{s.lead} does not know the producer yet', self.into(s, p, 'pass')
        elif handed or b > due:
            yield f'P{p}: later', self.end(s, p, 'N')
        elif form == 'n' and self.old_way == 'never':
            yield f'P{p} does not send to B{s.lead}: later', self.end(s, p, 'N')
        else:
            t = self.swap(s, p, (due, (b, (p, s.lives[p]), s.lead, s.brokers[s.lead][1]), False))
            yield f'P{p} reserves b{b}', self.end(s, p, 'N') if t is None else self.into(t, p, 'send')

    def at_send(self, s, p, b, cid, entry):
        _, due, (_, _, broker, life), handed = entry
        if s.pends[p] is not None:
            return                                                             # one of an earlier connection ends first
        if cid != s.cid or s.brokers[broker][1] != life or s.modes[p] != 'proxy':
            t = self.swap(s, p, (due, None, handed))
            yield f'P{p} does not send b{b}: released', self.end(s if t is None else t, p, 'N')
        else:
            yield f'P{p} sends b{b} to B{broker}', self.into(s._replace(pends=put(s.pends, p, ('w', b, broker, life, True))), p, 'out')

    def at_pass(self, s, p, b, cid, entry):
        broker = s.lead
        if s.pends[p] is not None:
            return
        if cid != s.cid or (s.brokers[broker][0] == 'o' and self.when == 'all'):
            yield f'P{p} does not pass b{b}', self.end(s, p, 'N')
        else:
            yield f'P{p} passes b{b} to B{broker} as it came', self.into(
                s._replace(pends=put(s.pends, p, ('i', b, broker, s.brokers[broker][1], True))), p, 'out')

    def at_out(self, s, p, b, cid, entry):
        return ()

    def at_X(self, s, p, b, cid, entry):
        yield f'P{p} tells that b{b} has failed', self.end(s, p, 'X')

    def at_ack(self, s, p, b, cid, entry):
        if entry[2] is None:
            yield f'P{p} answers b{b}', self.end(s, p, 'A')
        else:
            t = self.swap(s, p, (b + 1, None, entry[3]))
            yield f'P{p} commits b{b}', self.end(s, p, 'N') if t is None else self.end(t, p, 'A')

    def at_refused(self, s, p, b, cid, entry):
        t = None if entry[2] is None else self.swap(s, p, (entry[1], None, entry[3]))
        yield f'P{p} tells that b{b} was refused', self.end(s if t is None else t, p, 'N')

    def at_doubt(self, s, p, b, cid, entry):
        if entry[2] is None:
            yield f'P{p} does not know what became of b{b}: 7', self.end(s, p, 'N')
        else:
            yield f'P{p} resolves its doubt', self.into(s, p, 'resolve')

    def at_resolve(self, s, p, b, cid, entry):
        """Settle, then read the log: nothing of the intent is on its way any more."""
        _, due, (what, (owner, _), broker, life), handed = entry
        pend = s.pends[owner]
        if pend is not None and pend[0] == 'w' and pend[2:4] == (broker, life) and s.brokers[broker][1] == life:
            return
        found = ('w', what) in s.log
        t = self.swap(s, p, (what + 1 if found else due, None, handed))
        yield f'P{p} reads the log: b{what} is {"there" if found else "not there"}', self.end(s if t is None else t, p, 'N')

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        stored = [b for _, b in s.log]
        if len(set(stored)) < len(stored):
            return 'G DUPLICATE'
        if stored != sorted(stored):
            return 'I2 REORDER'
        if any(x == 'A' and b not in stored for b, x in enumerate(s.st)):
            return 'I3 LOST'
        return 'E A GOOD BATCH FAILED' if 'X' in s.st else None

    def is_done(self, s):
        return set(s.st) == {'A'}

    def show(self, s):
        return f'==> log={s.log} client={s.st} entry={s.entry} brokers={s.brokers} modes={s.modes}'
