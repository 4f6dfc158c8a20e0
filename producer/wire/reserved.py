"""Changes names of fields that LogHub reserves for the time, topic, source and tags of a log.

Readers return these values as fields ``__time__``, ``__time_ns_part__``, ``__topic__``, ``__source__`` and
``__tag__:NAME``. A log's own field with such a name would be mistaken for them. So all senders rename it, and readers
rename such fields of other clients: ``__topic__`` becomes ``__topic___``, and ``__tag__:env`` becomes ``___tag__:env``.

``_bytes.pxd`` has the same rule for the native encoders.
"""

from __future__ import annotations

RESERVED_NAMES = frozenset({"__time__", "__time_ns_part__", "__topic__", "__source__"})
TAG_PREFIX = "__tag__:"

_RESERVED_KEYS = frozenset(name.encode() for name in RESERVED_NAMES)
_TAG_KEY = TAG_PREFIX.encode()


def free_name(name: str) -> str:
    """Return the name that a field is sent and read under."""
    if name in RESERVED_NAMES:
        return f"{name}_"
    return f"_{name}" if name.startswith(TAG_PREFIX) else name


def free_key(key: bytes) -> bytes:
    """Return the name that a field is sent and read under, in UTF-8."""
    if key in _RESERVED_KEYS:
        return key + b"_"
    return b"_" + key if key.startswith(_TAG_KEY) else key
