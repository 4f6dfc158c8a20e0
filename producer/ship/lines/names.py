"""Names of parsed fields, changed where records or LogHub reserve them.

A parsed field gets an underscore after its name if records use the name. Names that LogHub reserves get one as in
:mod:`...wire.reserved`. A field without a name is called ``_``.
"""

from __future__ import annotations

from functools import lru_cache

from ...wire.reserved import RESERVED_NAMES, TAG_PREFIX

#: The names that records use, and those that LogHub reserves.
RESERVED_FIELDS = frozenset(
    {"content", "content_base64", "__file_offset__", "line_part"}
    | RESERVED_NAMES
    | {"__partition_time__"}
    | {"_extract_others_", "__extract_others__"}
)
#: LogHub's maximum length of a field name, bytes. A line with a longer one is shipped as text.
MAX_NAME_BYTES = 128


def sendable_fields(found: dict[str, str]) -> dict[str, str] | None:
    """Return the fields under names that can be sent; None if a name is longer than LogHub accepts."""
    # Nearly every line of a file has the same names, and only ASCII text.
    if all(map(is_plain, found)) and "".join(found.values()).isascii():
        return found
    named: dict[str, str] = {}
    for name, value in found.items():
        free = free_name(sendable(name), named)
        if len(free.encode()) > MAX_NAME_BYTES:
            return None
        named[free] = sendable(value)
    return named


@lru_cache(maxsize=4096)
def is_plain(name: str) -> bool:
    """Return True if a name can be sent unchanged."""
    return name.isascii() and len(name) <= MAX_NAME_BYTES and free_name(name, {}) == name


def free_name(name: str, taken: dict[str, str]) -> str:
    """Return the name to send a field under, next to the names in ``taken``."""
    if name.startswith(TAG_PREFIX):
        name = f"_{name}"
    while not name or name in RESERVED_FIELDS or name in taken:
        name += "_"
    return name


def sendable(text: str) -> str:
    """Return text that UTF-8 can encode."""
    # JSON may contain half of a surrogate pair ("\ud800"), which UTF-8 cannot encode.
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
