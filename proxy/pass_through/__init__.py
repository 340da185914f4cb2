"""Clients that authenticate at the broker themselves: their own connections, their own rights, the same rules."""
