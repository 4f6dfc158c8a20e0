"""The standard library's ``compression.zstd``; before Python 3.14, its backport."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
