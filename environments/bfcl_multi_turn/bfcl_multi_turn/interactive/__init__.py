"""The interactive protocol: text actions, a per-turn attempt limit, a code for every step, and their record.

Everything in this package is a pure function or a record, except `play`, which carries the protocol out in a worker.
Nothing here evaluates model text.
"""
