"""R6, R9, R10: what a log tells of a producer, by the form in which its leader stores batches (`proxy/flow/form.py`).

A model of its own: one producer, one partition, one proxy at a time, and a leader whose form may change. Each batch is
decided in one step, as the other models are about its parts. A batch in the log is `wrapper`, `own` (ids of its
producer) or `marked`. The first two name their producer. A marked one is recognised only where another one is known to
begin or end (R10): the batch that waits, the first of the epoch, whatever is recognised before it.

With ids of its own a broker answers a batch that it knows as a duplicate, and refuses one that does not follow on what
it knows. It may forget a producer: then it takes any sequence (KIP-360). It knows nothing of wrappers and marked
batches. A deaf client hears no answer until it connects again: it sends all that it has not heard of once more, the
lowest one first.

Safety    I1 DUPLICATE  a batch is in the log twice
          I2 ORDER      a batch is in the log after a later one
          I3 LOSS       an acknowledged batch is not in the log, and retention has not deleted it
          E  the broker refuses a batch as out of order: nothing is missing
Progress  T  from every reachable state, without any further fault, all batches can still become acknowledged, or be
             reported as undecidable, or given up
"""
from collections import namedtuple

from small import Small

RULES = dict(
    # R6 an unknown outcome is looked for in the 'log' | the batch is sent again, and its 'broker' decides
    # | a log of which no batch may be read ('nothing') has none of it
    resolves='log',
    # R10 so is what Redis has lost
    rebuilds='log',
    # R10 where the front of the log is deleted, what is not recognised is 'unknown' | 'absent'
    front='unknown',
    # R5 what the broker refuses as out of order, and the log does not have, is appended 'marked' | the client is 'told'
    refused='marked',
    # where the leader's form changes between own ids and others: at any time ('free'), or only to own ids, for good,
    # once each outcome is 'known'
    turns='known',
    # a proxy that passes on what clients send begins with it 'at once', once each outcome is 'known' | once no client
    # may send again what was appended before ('horizon')
    passes='horizon',
)
WORLD = dict(N=3, W=3, form='marked', forms='marked')      # forms: those that the leader may have
FAULTS = dict(
    deaf=1,     # the client hears nothing for a while
    lost=0,     # the proxy does not hear whether a batch was appended
    loss=0,     # Redis loses all
    retain=0,   # retention deletes the first batch of the log
    cut=0,      # the log loses a batch of unknown outcome
    evict=0,    # the broker forgets the producer
    turn=0,     # the leader has another form
    native=0,   # from now on the proxy passes on what clients send
)

# st: of each batch N new, F sent and not heard of, R to be sent again, A acknowledged, X undecidable or given up. entry:
# None, or (the batch that is due, the batch in doubt or None). log: (batch, form); deleted: how many of its first
# batches are. known: the batch that the broker expects, None: it knows nothing of the producer
State = namedtuple('State', 'st is_deaf entry log deleted known form is_native refused bud')


class Forms(Small):
    tables = RULES, WORLD, FAULTS

    def first(self):
        return State('N' * self.N, False, (0, None), (), 0, None, self.form, False, False, self.budget())

    # ------------------------------------------------------------------ all steps
    def steps(self, s):
        if not s.is_deaf and self.left(s, 'deaf'):
            yield 'C hears nothing any more', self.spend(s._replace(is_deaf=True), 'deaf')
        if 'F' in s.st:
            yield 'C connects again', s._replace(st=s.st.replace('F', 'R'), is_deaf=False)
        if 'R' in s.st:
            yield 'C gives up', s._replace(st=s.st.replace('R', 'X'))
        b = self.next_of(s)
        if b is not None:
            yield from self.sends(s, b)
        yield from self.faults(s)

    def next_of(self, s):
        """The batch that the client sends next."""
        if 'X' in s.st:
            return None             # it goes on under another epoch, of which this model is not
        if 'R' in s.st:
            return s.st.index('R') if 'F' not in s.st else None
        b = s.st.find('N')
        return b if b >= 0 and b - self.lowest(s) < self.W else None

    def lowest(self, s):
        """The first batch of which the client has not heard."""
        return next((i for i, x in enumerate(s.st) if x != 'A'), self.N)

    def faults(self, s):
        if self.left(s, 'loss') and s.entry is not None:
            yield 'REDIS loses all', self.spend(s._replace(entry=None), 'loss')
        if self.left(s, 'retain') and len(s.log) > s.deleted:
            yield f'RETENTION deletes b{s.log[s.deleted][0]}', self.spend(s._replace(deleted=s.deleted + 1), 'retain')
        if self.left(s, 'cut') and s.entry and s.entry[1] is not None and s.log and s.log[-1][0] == s.entry[1] and len(s.log) > s.deleted:
            log = s.log[:-1]
            yield 'the log loses its end', self.spend(s._replace(log=log, known=self.known_by(s, log)), 'cut')
        if self.left(s, 'evict') and s.known is not None:
            yield 'BROKER forgets the producer', self.spend(s._replace(known=None), 'evict')
        for form in self.forms.split() if self.left(s, 'turn') and not s.is_native else ():
            if form != s.form and self.may_turn(s, form):
                yield f'BROKER stores {form}', self.spend(s._replace(form=form), 'turn')
        if self.left(s, 'native') and not s.is_native and self.may_pass(s):
            yield 'the proxy passes all on', self.spend(s._replace(is_native=True), 'native')

    def known_by(self, s, log):
        own = [b for b, form in log if form == 'own']
        return own[-1] + 1 if own and s.known is not None else None

    def may_turn(self, s, form):
        if self.turns == 'free' or 'own' not in (form, s.form):
            return True
        return form == 'own' and s.entry is not None and s.entry[1] is None

    def may_pass(self, s):
        if self.passes == 'at once':
            return True
        is_known = s.entry is not None and s.entry[1] is None
        return is_known and (self.passes == 'known' or not set(s.st) & set('FR'))

    # ------------------------------------------------------------------ one batch
    def sends(self, s, b):
        if s.is_native:
            yield from self.at_broker(s, b, f'C sends b{b}, which is passed on')
            return
        how = self.rebuilds if s.entry is None else self.resolves if s.entry[1] is not None else None
        if how == 'broker' and s.form == 'own' and s.entry is None and b > self.lowest(s):
            yield f'C sends b{b}: what comes before it is due first', self.answer(s, b, 'R')        # R11: to a broker that knows nothing any would do
            return
        if how == 'broker' and s.form == 'own':
            x = b if s.entry is None else s.entry[1]        # what is in doubt is sent again first
            for label, t in self.at_broker(s, x, f'C sends b{b}, P sends b{x} again'):
                yield label, t if x == b else t._replace(st=self.put(s.st, b, 'R'))
            return
        due, label = s.entry[0] if s.entry else None, f'C sends b{b}'
        if how is not None:
            due, label = self.looked_up(s, b, how), f'{label}, P looks into the log'
        if due is None:
            yield f'{label}, which does not tell', self.answer(s, b, 'X')
            return
        s = s._replace(entry=(due, None))
        if b < due:
            # R9: the log is asked where the batch lies, unless the connection that acknowledged it is still open
            yield f'{label}: it is a duplicate', self.answer(s, b, 'A')
        elif b > due:
            yield f'{label}: it is not due yet', self.answer(s, b, 'R')
        elif s.form == 'own':
            yield from self.at_broker(s, b, label)
        else:
            yield from self.appends(s, b, f'{label}: it is appended, {s.form}')

    def looked_up(self, s, b, how):
        """The batch that is due by the log; None: it does not tell."""
        there = () if how == 'nothing' else s.log[s.deleted:]
        if s.entry is not None:
            due, doubt = s.entry                            # R6: one batch is looked for, above the last commit
            if any(x == doubt for x, _ in there):
                return doubt + 1
            return None if s.deleted > due and how != 'nothing' else due
        recognised = None                                   # R10: all of the producer
        for x, form in there:
            if form != 'marked' or x in (0, b - 1, b, b + 1) or x == recognised:
                recognised = x + 1
        if recognised is not None:
            return recognised if b >= recognised or any(x == b for x, _ in there) else None
        if s.deleted and there and self.front == 'unknown':
            return None
        # R11: with nothing of a producer in the log it begins with 0, or anywhere once that is gone, but with no later
        # batch before the lowest one of its client
        return self.lowest(s) if s.deleted or how == 'nothing' else 0

    def at_broker(self, s, b, label):
        """It is sent under the ids of its producer."""
        if s.known is None or s.known == b:
            for text, t in self.appends(s, b, f'{label}: it is appended, own', form='own'):
                yield text, t
        elif b < s.known:
            yield f'{label}: a duplicate to the broker', self.answer(s._replace(entry=(max(b + 1, s.entry[0] if s.entry else 0), None)), b, 'A')
        elif b > self.lowest(s):
            yield f'{label}: not due yet to the broker', self.answer(s, b, 'R')
        elif s.is_native or self.refused == 'told':
            yield f'{label}: out of order to the broker', s._replace(refused=True)
        else:
            yield from self.appends(s, b, f'{label}: out of order to the broker, so it is appended, marked', form='marked')

    def appends(self, s, b, label, form=None):
        form = form or s.form
        there = s._replace(log=s.log + ((b, form),), known=b + 1 if form == 'own' else s.known)
        due = s.entry[0] if s.entry else b
        yield label, self.answer(there._replace(entry=(max(due, b + 1), None)), b, 'A')
        if self.left(s, 'lost') and not s.is_native:
            for what, t in (('', there), ('not ', s)):
                t = self.answer(t._replace(entry=(due, b)), b, 'R')
                yield f'{label}, {what}really, and P does not hear of it', self.spend(t, 'lost')

    def answer(self, s, b, x):
        """A deaf client does not hear it."""
        return s._replace(st=self.put(s.st, b, 'F' if s.is_deaf else x))

    def put(self, st, b, x):
        return st[:b] + x + st[b + 1:]

    # ------------------------------------------------------------------ properties
    def verdict(self, s):
        there = [b for b, _ in s.log[s.deleted:]]
        if len(set(there)) < len(there):
            return 'I1 DUPLICATE'
        if there != sorted(there):
            return 'I2 ORDER'
        if any(x == 'A' and b not in [one for one, _ in s.log] for b, x in enumerate(s.st)):
            return 'I3 LOSS'
        return 'E OUT OF ORDER WHERE NOTHING IS MISSING' if s.refused else None

    def is_done(self, s):
        return 'X' in s.st or set(s.st) == {'A'}

    def show(self, s):
        return f'==> client={s.st} entry={s.entry} log={s.log[s.deleted:]} deleted={s.deleted} broker={s.known}'
