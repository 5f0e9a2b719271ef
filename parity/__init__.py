"""Parity replay: official BFCL and this suite against the same endpoint, compared request by request.

Run as `python -m parity` from the repository's root. Nothing here is part of a wheel.

The official side is BFCL's own `bfcl generate` and `bfcl evaluate` in an environment of its own; the other side is
`vf-run`. Both talk to an endpoint in this process that records every request. Afterwards the requests, the memory
snapshots, the decoded calls and their results, and the verdicts of each rollout are compared.
"""
