"""Producer state: arithmetic, entries, decisions and the store. Pure, except for the three files that know Redis."""
