"""Encode and decode wire formats: log groups, compression, signatures; without I/O, clock or threads.

Encoders exist as Python and Cython implementations; :mod:`.speed` selects one.
"""
