"""What the small models of one rule share (order, parts, expiry, deposed, memory, confirm, append_reservation_handover, bulk): how often each fault may happen, and the search of all
states. A model has `tables` of its rules, its world and its faults, and the functions first, steps, verdict, is_done and show; its states
have a field bud, with how many of each fault are left.
"""
import time
from collections import defaultdict, deque

from state import put


class Small:
    notice = False

    def __init__(self, forever=False, **changes):
        values = {k: v for table in self.tables for k, v in table.items()}
        assert not set(changes) - set(values), changes
        for k, v in {**values, **changes}.items():
            setattr(self, k, v)
        self.names_of_faults = tuple(self.tables[2])
        self.forever = forever

    # ------------------------------------------------------------------ faults
    def budget(self):
        return tuple(getattr(self, f) for f in self.names_of_faults)

    def left(self, s, fault):
        return s.bud[self.names_of_faults.index(fault)]

    def spend(self, s, fault):
        i = self.names_of_faults.index(fault)
        return s._replace(bud=put(s.bud, i, s.bud[i] - 1))

    # ------------------------------------------------------------------ searches
    def search(self, limit=3_000_000):
        """Breadth first: every state, where it came from, and (to look for T) the steps without a fault backward."""
        origin, todo, back = {self.first(): None}, deque([self.first()]), defaultdict(list)
        while todo:
            s = todo.popleft()
            for label, t in self.steps(s):
                if self.forever and t.bud == s.bud:
                    back[t].append(s)
                if t in origin:
                    continue
                origin[t] = (s, label)
                if not self.forever and self.verdict(t):
                    return origin, back, t
                todo.append(t)
            if len(origin) > limit:
                raise RuntimeError('too many states')
        return origin, back, None

    def check(self):
        began = time.process_time()
        origin, _, bad = self.search()
        return self.verdict(bad) if bad else 'HOLDS', len(origin), time.process_time() - began, self.trace(origin, bad) if bad else []

    def live(self):
        began = time.process_time()
        origin, back, _ = self.search()
        good = [s for s in origin if self.is_done(s)]
        reach = set(good)
        while good:
            for y in back[good.pop()]:
                if y not in reach:
                    reach.add(y)
                    good.append(y)
        doomed = next((s for s in origin if s not in reach), None)
        return 'HOLDS' if doomed is None else 'T STUCK', len(origin), time.process_time() - began, self.trace(origin, doomed) if doomed else []

    def trace(self, origin, s):
        out = [self.show(s)]
        while origin[s] is not None:
            s, label = origin[s]
            out.append(label)
        return out[::-1]
