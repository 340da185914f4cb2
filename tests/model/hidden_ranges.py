"""Rule R24: what was named as a duplicate is left out of fetches, and nothing else; no consumer stands still.

A model of its own: one log of a few messages, some of them wrappers of two records; two proxies that know a list of named ranges, each its
own version of it, and read it from Redis now and then; consumers that fetch through either of them. A fetch brings one message: the
smallest answer that there is. Truncation is by an unclean election, or the topic is recreated; what is written
afterwards has other checksums. A consumer that stands where all is left out has a skip: its next fetch begins after it.

Safety    H  every offset that a consumer went past was delivered, or was named in a log in which it could have read it since it came there
          N  no record that is named, by a range that counts in Redis, is delivered by a proxy that has begun since, or knows of it
          R  a range that somebody has shown again stays so    (claimed unless Redis has lost the list)
Progress  T  from every reachable state, without any further fault, all consumers can still reach the end of the log, and Redis has what the
             proxies know
"""
from collections import namedtuple

from small import Small
from state import put

RULES = dict(
    # R24  a message is the one that was seen by its offset and 'checksum' | by its 'offset' alone
    same='checksum',
    # R24  a range counts in the messages in which it was 'seen' | in every message that is left out in 'part', by any range
    counts='seen',
    # R24  where all is left out the next fetch begins after it ('skip') | at the same offset again ('same')
    empty='skip',
    # R24  so it is where all that is left lies before the consumer's offset (True) | that is delivered, and is nothing new
    part=True,
    # R24  a skip is of one 'connection', and ends with an error | is of the 'proxy', for any consumer at that offset
    skips='connection',
    # R24  a proxy serves nobody before it has 'read' the list | serves at 'once'
    serves='read',
    # R24  what Redis has lost is given back
    gives_back=True,
    # R24  what was found in the log counts once it is 'stored' | at 'once', and a removal meanwhile is written over
    found='stored',
)
WORLD = dict(
    log=(1, 1, 1),      # records of each message
    ranges=((1, 2),),   # ranges that people name: first offset, offset after the last
    consumers=1,
    remaining=0,        # of the log that is left by a truncation, in messages
    refill=(1, 1, 1),   # what is written then
)
FAULTS = dict(
    crash=0,            # a proxy is killed, and starts again
    flush=0,            # Redis loses the list
    cut=0,              # the log loses its end, or the topic is recreated, and is written again
    remove=0,           # somebody shows a range again
    begin=0,            # a consumer begins again, at the start, over another connection
)

# log: ((first, end, life), ..). stored, and each proxy's list: ((range, state, word, message), ..), as a map by its range: state asked | active |
# removed, word: the later one counts, message: ((first, end, life), ..) as seen. proxies: (list or None: not read, skips, finding): skips
# ((offset, to), ..) of the proxy. who: per consumer (offset, proxy, skip or None). seen: per consumer the messages it could have read since it came
# to its offset. shown: ranges that somebody has shown again. bad: what was wrong
State = namedtuple('State', 'log life stored proxies who seen shown clock bad bud')
Proxy = namedtuple('Proxy', 'known skips finding')
Consumer = namedtuple('Consumer', 'at proxy skip')


def messages_of(records, at, life):
    out = []
    for n in records:
        out.append((at, at + n, life))
        at += n
    return tuple(out)


def merged(one, other):
    result = dict(one)
    for place, word in other:
        if place not in result or result[place][1] < word[1]:
            result[place] = word
    return tuple(sorted(result.items()))


class Named(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        stored = tuple((place, ('asked', 0, ())) for place in sorted(self.ranges))
        log = messages_of(self.log, 0, 0)
        who = (Consumer(0, 0, None),) * self.consumers
        return State(log, 0, stored, (Proxy(None, (), None),) * 2, who, (frozenset(log),) * self.consumers, (), 1, None, self.budget())

    # ------------------------------------------------------------------ what a proxy leaves out
    def left_out(self, known, message):
        """Offsets of a message that are left out by a list."""
        found = set()
        active = [(place, word[2]) for place, word in known if word[0] == 'active']
        for place, noted in active:
            if self.same == 'offset':
                is_it = any(m[:2] == message[:2] or m[1] == message[1] for m in noted)
            else:
                is_it = message in noted
            if self.counts == 'part':
                is_it = is_it or any(message in others for _, others in active)
            if is_it:
                found |= set(range(*message[:2])) & set(range(*place))
        return found

    def is_named(self, s, offset, message):
        """Is it, by what Redis and the proxies know?"""
        lists = [s.stored] + [p.known for p in s.proxies if p.known is not None]
        return any(place[0] <= offset < place[1] and message in word[2] for known in lists for place, word in known)

    # ------------------------------------------------------------------ steps
    def steps(self, s):
        if s.bad:
            return
        for p in (0, 1):
            yield from self.proxy(s, p)
        for c in range(self.consumers):
            yield from self.consumer(s, c)
        if self.left(s, 'flush') and s.stored:
            yield 'Redis loses the list', self.spend(s._replace(stored=()), 'flush')
        if self.left(s, 'remove'):
            for place, word in s.stored:
                if word[0] != 'removed':
                    t = s._replace(stored=merged(s.stored, ((place, ('removed', s.clock, word[2])),)), shown=s.shown + (place,), clock=s.clock + 1)
                    yield f'{place} is shown again', self.spend(t, 'remove')
        if self.left(s, 'cut'):
            yield 'the log is cut off, and written again', self.spend(self.cut_off(s), 'cut')

    def cut_off(self, s):
        """Consumers hear of it: the leader has gone, so their connections to it, or their next answers, fail."""
        kept = s.log[:self.remaining]
        log = kept + messages_of(self.refill, kept[-1][1] if kept else 0, s.life + 1)
        who = tuple(c._replace(skip=None) for c in s.who)
        return s._replace(log=log, life=s.life + 1, who=who, seen=(frozenset(log),) * self.consumers)

    def proxy(self, s, p):
        x = s.proxies[p]
        known = merged(x.known or (), s.stored)
        if self.left(s, 'crash'):
            fresh = Proxy(None, (), None)
            who = tuple(c._replace(skip=None) if c.proxy == p else c for c in s.who)
            seen = tuple(frozenset(s.log) if c.proxy == p else f for c, f in zip(s.who, s.seen))
            yield f'P{p} is killed', self.spend(s._replace(proxies=put(s.proxies, p, fresh), who=who, seen=seen), 'crash')
        if x.finding is None and (x.known is None or known != x.known):
            yield f'P{p} reads the list', self.take(s, p, known)
        if x.known is not None and x.finding is None and self.gives_back and merged(s.stored, x.known) != s.stored:
            yield f'P{p} gives back what it knows', s._replace(stored=merged(s.stored, x.known))
        if x.finding is None:
            for place, word in s.stored:
                if word[0] == 'asked':
                    seen = tuple(m for m in s.log if m[0] < place[1] and place[0] < m[1])
                    state = 'active' if seen else 'removed'
                    yield f'P{p} looks into the log for {place}', s._replace(proxies=put(s.proxies, p, x._replace(finding=(place, word, state, seen))))
        else:
            place, word, state, seen = x.finding
            found = ((place, (state, s.clock, seen)),)
            t = s._replace(proxies=put(s.proxies, p, x._replace(finding=None)), clock=s.clock + 1)
            if dict(s.stored).get(place) == word:
                t = t._replace(stored=merged(s.stored, found))
                yield f'P{p} stores what it has found of {place}', self.take(t, p, merged(known, found))
            elif self.found == 'once':
                yield f'P{p} takes what it has found of {place}', self.take(t, p, merged(known, found))
            else:
                yield f'P{p} finds another list', t

    def take(self, s, p, known):
        """Skips of the ranges before end."""
        who = tuple(c._replace(skip=None) if c.proxy == p else c for c in s.who)
        return s._replace(proxies=put(s.proxies, p, s.proxies[p]._replace(known=known, skips=())), who=who)

    # ------------------------------------------------------------------ consumers
    def consumer(self, s, c):
        me = s.who[c]
        t = s._replace(seen=put(s.seen, c, frozenset(s.log)))
        yield f'C{c} goes to P{1 - me.proxy}', t._replace(who=put(s.who, c, Consumer(me.at, 1 - me.proxy, None)))
        if self.left(s, 'begin'):
            yield f'C{c} begins anew', self.spend(t._replace(who=put(s.who, c, Consumer(0, me.proxy, None))), 'begin')
        x = s.proxies[me.proxy]
        if x.known is None and self.serves == 'read':
            return
        skips = dict(x.skips)
        at = skips.get(me.at, me.at) if self.skips == 'proxy' else me.skip if me.skip is not None else me.at
        end = s.log[-1][1]
        if at > end:
            if at == me.at:
                yield f'C{c} begins where the log does', t._replace(who=put(s.who, c, Consumer(0, me.proxy, None)))
            else:
                yield f'C{c} stays at {me.at}', self.note(s, c, None)
            return
        message = next((m for m in s.log if m[0] <= at < m[1]), None)
        if message is None:
            return
        out = self.left_out(x.known or (), message)
        left = [o for o in range(*message[:2]) if o not in out]
        new = [o for o in left if o >= me.at]
        if out and not (new if self.part else left):
            if self.empty == 'skip':
                yield f'C{c} gets nothing of {message}', self.note(self.judge(s, c, message, []), c, message[1])
        elif new:
            t = self.judge(s, c, message, new)
            who = put(t.who, c, Consumer(message[1] if not out else new[-1] + 1, me.proxy, None))
            yield f'C{c} gets {new}', t._replace(who=who, seen=put(t.seen, c, frozenset(s.log)))

    def note(self, s, c, to):
        me = s.who[c]
        if self.skips == 'connection':
            return s._replace(who=put(s.who, c, me._replace(skip=to)))
        x = s.proxies[me.proxy]
        skips = dict(x.skips)
        skips.pop(me.at, None)
        if to is not None:
            skips[me.at] = to
        return s._replace(proxies=put(s.proxies, me.proxy, x._replace(skips=tuple(sorted(skips.items())))))

    # ------------------------------------------------------------------ properties
    def judge(self, s, c, message, new):
        me = s.who[c]
        passed = [o for o in range(me.at, new[-1] if new else message[1]) if o not in new]
        for o in passed:
            could = [m for m in s.seen[c] | frozenset(s.log) if m[0] <= o < m[1]]
            if not any(self.is_named(s, o, m) for m in could):
                return s._replace(bad=f'H OFFSET {o} WAS PASSED OVER')
        x = s.proxies[me.proxy]
        for place, word in s.stored:
            known = dict(x.known or ()).get(place)
            if word[0] == 'active' and message in word[2] and any(place[0] <= o < place[1] for o in new):
                if x.known is None or known == word:
                    return s._replace(bad='N A NAMED RECORD WAS DELIVERED')
        return s

    def verdict(self, s):
        if s.bad:
            return s.bad
        if self.left(s, 'flush') == self.flush and any(place in s.shown and word[0] == 'active' for place, word in s.stored):
            return 'R SHOWN AGAIN, AND LEFT OUT'
        return None

    def is_done(self, s):
        """Somebody who stands where only what is left out follows has read to the end."""
        def ends(c):
            x = s.proxies[c.proxy]
            at = dict(x.skips).get(c.at, c.at) if self.skips == 'proxy' else c.skip if c.skip is not None else c.at
            return at == s.log[-1][1]
        return all(map(ends, s.who)) and all(merged(s.stored, x.known or ()) == s.stored for x in s.proxies)

    def show(self, s):
        return f'==> log={s.log} stored={s.stored} proxies={s.proxies} who={s.who} {s.bad or ""}'
