"""The standard library's ``compression.zstd``; before Python 3.14, its backport."""

import sys

if sys.version_info >= (3, 14):
    try:
        from compression import zstd
    except ImportError as error:
        raise ImportError(
            "this Python was built without zstd: install the headers of libzstd (Debian, Ubuntu: libzstd-dev; Fedora: "
            "libzstd-devel) and build Python again",
            name=error.name,
        ) from error
else:
    from backports import zstd

__all__ = ["zstd"]
