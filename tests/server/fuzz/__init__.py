"""A fuzz of the embedded server, beyond its authentication.

Each round is made from its seed. It has some tens of cases; a case is a connection with requests. Most requests are
signed correctly, although their content may be nonsense. They are delivered whole, in pieces, by half, too slowly, or
without reading the answer. Some are valid writes: an answered one must be stored exactly once, an unanswered one at
most once. :mod:`tests.server.fuzz.test_fuzz` has the checks after each round, and the way to replay one.
"""
