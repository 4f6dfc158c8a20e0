"""Names of fields that LogHub gives to what every log has: its time, topic, source and tags.

Readers show these beside the fields, under ``__time__``, ``__time_ns_part__``, ``__topic__``, ``__source__`` and
``__tag__:NAME``. A field of a log with such a name would be taken for them. So every way of sending gives it another
one, and readers do so with what other clients have sent: ``__topic__`` becomes ``__topic___``, and ``__tag__:env``
becomes ``___tag__:env``.

``_bytes.pxd`` has the same rule for the compiled encoders.
"""

from __future__ import annotations

RESERVED_NAMES = frozenset({"__time__", "__time_ns_part__", "__topic__", "__source__"})
TAG_PREFIX = "__tag__:"

_RESERVED_KEYS = frozenset(name.encode() for name in RESERVED_NAMES)
_TAG_KEY = TAG_PREFIX.encode()


def free_name(name: str) -> str:
    """Return the name under which a field is sent and read."""
    if name in RESERVED_NAMES:
        return f"{name}_"
    return f"_{name}" if name.startswith(TAG_PREFIX) else name


def free_key(key: bytes) -> bytes:
    """Do the same for a name in UTF-8."""
    if key in _RESERVED_KEYS:
        return key + b"_"
    return b"_" + key if key.startswith(_TAG_KEY) else key
