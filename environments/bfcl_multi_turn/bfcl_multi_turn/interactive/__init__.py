"""The interactive protocol: text actions, a per-turn attempt limit, a code for every step, and their record.

Everything in this package is a pure function or a record. Nothing here runs a tool or evaluates model text.
"""
