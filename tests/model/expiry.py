"""Rule R2 over an expiry: the versions of an entry begin again when it has expired, and swaps compare versions.

A model of its own: one producer, batches one after the other, two proxies that remember the entry as they last knew it, one Redis that
forgets an entry without an intent two units of time after its last write. The log always answers. A unit is long: time
passes only while nothing is under way, that is, clients retry for less than the expiry.

Safety    G  no batch twice in the log
          E  no proxy returns `OUT_OF_ORDER_SEQUENCE_NUMBER` for a batch that is in the log
Progress  T  from every reachable state, without any further fault, all batches can still become acknowledged
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # R2  what a proxy remembers and wrote so many units ago is read again: 1 'before' it can have expired | 2 'when' it has, by the proxy's
    # own time | None
    learns_again='before',
    # R2  the versions of an entry that begins again begin at 0 | with its 'own' numbers, which no earlier one had
    versions='0',
    # R2, `append_reservation.py`  the owner of an append reservation appends without a swap, until another proxy asks for the
    # entry: False | True; such an entry is 'kept' | it 'expires' as any other
    owns=False, owned='kept',
    # R11  a batch of an absent entry begins it, whatever its sequence: see order.py. Here it always does.
)
WORLD = dict(N=2)
FAULTS = dict(
    days=2,         # units of time that pass
    lag=0,          # such a unit passes in Redis, and not by the clocks of the proxies
    reconnect=0,    # the client times out, sends again to either proxy
    between=0,      # a unit passes in Redis while something is under way
)
GONE = 2

# st: of each batch N new, F under way, R to send again, A acknowledged, X got `OUT_OF_ORDER_SEQUENCE_NUMBER`. conn,
# cid: the client's proxy and connection. stored: the entry, or None; idle: units since its last write. held: what each
# proxy remembers. flows: per proxy None or (pc, batch, connection). lives: entries that began
State = namedtuple('State', 'st conn cid stored idle held flows log lives bud')
# life: for versions of their own; owner: of the open intent, else None
Entry = namedtuple('Entry', 'life version next owner')
# entry: None for an absent one; age: units since it was written by this proxy, None: it was read
Held = namedtuple('Held', 'entry age')


class Expiry(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        return State('N' * self.N, 0, 0, None, 0, (None, None), (None, None), (), 0, self.budget())

    def steps(self, s):
        b = next((b for b in range(self.N) if s.st[b] not in 'AX'), None)
        if b is not None and s.st[b] in 'NR' and s.flows[s.conn] is None:
            t = s._replace(st=s.st[:b] + 'F' + s.st[b + 1:], flows=put(s.flows, s.conn, ('learn', b, s.cid)))
            yield f'C sends b{b} to P{s.conn}', t
        if b is not None and s.st[b] == 'F' and self.left(s, 'reconnect'):
            for p in (0, 1):
                t = s._replace(st=s.st.replace('F', 'R'), cid=s.cid + 1, conn=p)
                yield f'C times out, reconnects to P{p}', self.spend(t, 'reconnect')
        if s.flows == (None, None) and 'F' not in s.st and 'R' not in s.st:
            if self.left(s, 'days'):
                yield 'time passes', self.spend(self.older(s, True), 'days')
            if self.left(s, 'lag'):
                yield 'time passes, by the clock of Redis only', self.spend(self.older(s, False), 'lag')
        elif self.left(s, 'between'):
            yield 'time passes meanwhile', self.spend(self.older(s, True), 'between')
        for p in (0, 1):
            if s.flows[p]:
                yield from getattr(self, 'at_' + s.flows[p][0])(s, p, *s.flows[p][1:])

    def older(self, s, for_all):
        if s.stored and (s.stored.owner is None or self.owned == 'expires'):
            s = s._replace(idle=s.idle + 1) if s.idle + 1 < GONE else s._replace(idle=0, stored=None)
        if for_all:
            s = s._replace(held=tuple(h and h._replace(age=None if h.age is None else min(h.age + 1, GONE)) for h in s.held))
        return s

    # ------------------------------------------------------------------ Redis
    def swap(self, s, p, entry):
        """The state after a swap by what the proxy holds, or None."""
        held = s.held[p].entry
        if (held and held[:2]) != (s.stored and s.stored[:2]):
            return None
        return s._replace(stored=entry, idle=0, held=put(s.held, p, Held(entry, 0)))

    def begun(self, s, b):
        life = s.lives if self.versions == 'own' else 0
        return s._replace(lives=s.lives + 1 if self.versions == 'own' else 0), Entry(life, 0, b, None)

    # ------------------------------------------------------------------ proxy
    def is_old(self, h):
        age = {'before': 1, 'when': GONE, None: None}[self.learns_again]
        return age is not None and (h.age is None or h.age >= age)

    def go(self, s, p, pc, b, cid):
        return s._replace(flows=put(s.flows, p, pc and (pc, b, cid)))

    def answer(self, s, p, b, cid, x):
        s = s._replace(flows=put(s.flows, p, None))
        return s._replace(st=s.st[:b] + x + s.st[b + 1:]) if cid == s.cid and s.st[b] == 'F' else s

    def is_owned(self, p, h):
        return self.owns and h is not None and h.entry is not None and h.entry.owner == p

    def at_learn(self, s, p, b, cid):
        h = s.held[p]
        if h is not None and (not self.is_old(h) or self.is_owned(p, h)):
            yield from self.decide(s, p, b, cid, False, 'remembers')
        else:
            t = s._replace(held=put(s.held, p, Held(s.stored, None)))
            yield from self.decide(t, p, b, cid, True, 'reads')

    def decide(self, s, p, b, cid, just_read, how):
        entry = s.held[p].entry
        text = f'P{p} {how} ' + ('that there is no entry' if entry is None else f'version {entry.version}, b{entry.next} is due')
        if cid != s.cid:
            yield f'{text}; the client has gone', self.go(s, p, None, b, cid)
        elif self.is_owned(p, s.held[p]) and entry.next == b:
            yield f'{text}, and owns it', self.go(s, p, 'forward', b, cid)
        elif entry is None or (entry.owner is None and entry.next == b):
            yield text, self.go(s, p, 'reserve', b, cid)
        elif entry.owner not in (None, p if self.owns else None):
            if just_read:                                                     # waits: its owner lives
                if self.owns and s.flows[1 - p] is None:
                    yield f'P{1 - p} is asked for it, hands over', self.hands_over(s, 1 - p)
                return
            yield f'{text}: reads again', self.go(s._replace(held=put(s.held, p, None)), p, 'learn', b, cid)
        elif b < entry.next:
            yield f'{text}: a duplicate', self.answer(s, p, b, cid, 'A')
        elif not just_read:
            yield f'{text}: reads again', self.go(s._replace(held=put(s.held, p, None)), p, 'learn', b, cid)
        else:
            yield f'{text}: 45', self.answer(s, p, b, cid, 'X')

    def at_reserve(self, s, p, b, cid):
        entry, t = s.held[p].entry, s
        if entry is None:
            t, entry = self.begun(s, b)
        new = self.swap(t, p, entry._replace(version=entry.version + 1, next=b, owner=p))
        if new is None:
            yield f'P{p} cannot swap, reads again', self.go(s._replace(held=put(s.held, p, None)), p, 'learn', b, cid)
        else:
            yield f'P{p} reserves b{b}: version {new.stored.version}', self.go(new, p, 'forward', b, cid)

    def at_forward(self, s, p, b, cid):
        if cid != s.cid:                                                      # R17
            held = s.held[p].entry
            yield f'P{p} does not forward, the client has gone: releases', self.finish(s, p, b, cid, held.next)
        else:
            t = s._replace(log=s.log + (b,))
            yield f'P{p} forwards b{b}: appended', self.go(t, p, 'commit', b, cid)

    def hands_over(self, s, p):
        mine = s.held[p].entry if self.is_owned(p, s.held[p]) else s.stored
        return s._replace(stored=mine._replace(version=mine.version + 1, owner=None), idle=0, held=put(s.held, p, None))

    def at_commit(self, s, p, b, cid):
        if self.owns:                                                         # in memory
            held = s.held[p].entry._replace(next=b + 1)
            t = self.go(s._replace(held=put(s.held, p, Held(held, s.held[p].age))), p, None, b, cid)
            yield f'P{p} commits b{b} in memory', self.answer(t, p, b, cid, 'A')
            return
        yield f'P{p} commits b{b}', self.finish(self.answer(s, p, b, cid, 'A'), p, b, cid, b + 1)

    def finish(self, s, p, b, cid, due):
        held = s.held[p].entry
        new = self.swap(s, p, held._replace(version=held.version + 1, next=due, owner=None))
        return self.go(new or s._replace(held=put(s.held, p, None)), p, None, b, cid)

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        if len(set(s.log)) < len(s.log):
            return 'G DUPLICATE'
        if any(x == 'X' and b in s.log for b, x in enumerate(s.st)):
            return 'E TOLD 45 FOR A STORED BATCH'
        return None

    def is_done(self, s):
        return set(s.st) <= {'A'}

    def show(self, s):
        return f'==> log={s.log} client={s.st} stored={s.stored}'
