"""Rules R1 and R10 for a registration that goes while its owner lives: all keys `member:` are deleted, or the clock of Redis's host is
stepped; or the state is lost while a proxy is cut off from Redis, and does not learn of it.

reg of a proxy: '' registered - 'lost' its registration has gone, and it does not know: its lease allows it to send still - 'away' its
lease is over, and it is cut off from Redis - 'grace' registered again, while another one is 'lost' whose lease was
granted before - 'blind' registered again, and what it would have had to wait for it takes for over.

Grace is time in a proxy. Here it is over when all leases are over that were granted before: no proxy is 'lost' any
more, or (store.py) sends what an older data generation gave it.
"""


class RegisteredPart:

    def alone(self, s, p):
        """R1: leases that were granted before may run still."""
        return s.pr[p].reg != 'grace'

    def registered_anew(self, s, p, reg=None):
        """reg: None as the rules have it."""
        if reg is None:
            reg = 'grace' if any(x.reg == 'lost' for o, x in enumerate(s.pr) if o != p) and self.after_loss == 'waits' else ''
        s = self.setp(s, p, reg=reg)
        if not any(x.reg == 'lost' for x in s.pr):
            s = s._replace(pr=tuple(x._replace(reg='') if x.reg == 'grace' else x for x in s.pr))
        return s

    def anew(self, s, p):
        x = s.pr[p]
        return self.setp(s, p, inc=x.inc + 1, mem=(None,) * self.producers, w=x.w and x.w._replace(valid=False))

    def proxy(self, s, p):
        x = s.pr[p]
        if x.reg == 'away':
            yield f'P{p} reaches Redis again and is registered', self.registered_anew(s, p, 'blind' if self.grace_from == 'loss' else None)
            return
        for label, t in super().proxy(s, p):
            if x.reg != 'lost' or self.registration is None or t.ent == s.ent:         # R2: else its swap is refused
                yield label, t
        if x.reg == 'lost':
            yield f'P{p} notices that its registration has gone, new incarnation', self.registered_anew(self.anew(s, p), p)

    def process_faults(self, s, p):
        for label, t in super().process_faults(s, p):
            starts = 'CRASHES' in label and self.first_start == 'at once'
            yield label, self.registered_anew(t, p, '' if starts else None)
        if self.left(s, 'away') and not s.pr[p].reg:
            yield f'P{p} is cut off from Redis until its lease is over', self.spend(self.setp(self.anew(s, p), p, reg='away'), 'away')

    def redis(self, s):
        for label, t in super().redis(s):
            if t.gen != s.gen:                                  # every registered proxy learns it, and waits again
                t = t._replace(pr=tuple(x._replace(reg='') if x.reg == 'blind' else x for x in t.pr))
            yield label, t
        if self.left(s, 'delist'):
            there = [p for p, x in enumerate(s.pr) if x.reg != 'away' and not (x.w and self.delists == 'resting')]
            for gone in [there] if self.delists == 'all' else [[p] for p in there]:
                t = s._replace(pr=tuple(x._replace(reg='lost') if p in gone else x for p, x in enumerate(s.pr)))
                name = 'all registrations' if self.delists == 'all' else f'the registration of P{gone[0]}'
                yield f'REDIS: {name} deleted', self.spend(t, 'delist')
