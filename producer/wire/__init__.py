"""Bytes mean something: LogGroup, compression, signatures; no I/O, no clock, no threads.

Encoders are in twins, Python and Cython; ``twins`` picks one.
"""
