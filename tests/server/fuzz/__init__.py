"""A fuzz of the embedded server that reaches behind its authentication.

Each round is made from its seed: some tens of cases, each a connection with requests, most of them signed well (what
is signed may be nonsense), delivered whole, in pieces, by half, too slowly, or without reading the answer. Among them
are writes that are good, whose records must be stored exactly once when they were answered, and at most once when they
were not. See :mod:`tests.server.fuzz.test_fuzz` for what must hold after each round, and for how to replay one.
"""
