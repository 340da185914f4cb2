"""Flows, the effects that they may ask for, and what the outcome of an append means. Knows no rule but R5 and R19."""
