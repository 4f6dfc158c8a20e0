"""Names of parsed fields: which can be sent, and under what other name the others are.

A parsed field whose name records claim gets an underscore after it, those that LogHub claims one as
:mod:`...wire.reserved` says; one without a name is called ``_``.
"""

from __future__ import annotations

from functools import lru_cache

from ...wire.reserved import RESERVED_NAMES, TAG_PREFIX

#: The names that records give, and those that LogHub claims for itself.
RESERVED_FIELDS = frozenset(
    {"content", "content_base64", "__file_offset__", "line_part"}
    | RESERVED_NAMES
    | {"__partition_time__"}
    | {"_extract_others_", "__extract_others__"}
)
#: LogHub's longest field name, bytes. A line with a longer one is shipped as text.
MAX_NAME_BYTES = 128


def sendable_fields(found: dict[str, str]) -> dict[str, str] | None:
    """What the parser found under names that are free; None if a name is longer than LogHub takes."""
    # Nearly every line of a file has the same names, and ASCII text in all fields.
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
    """Whether a name can be sent as it is."""
    return name.isascii() and len(name) <= MAX_NAME_BYTES and free_name(name, {}) == name


def free_name(name: str, taken: dict[str, str]) -> str:
    """The name under which a field can be sent beside those that are taken."""
    if name.startswith(TAG_PREFIX):
        name = f"_{name}"
    while not name or name in RESERVED_FIELDS or name in taken:
        name += "_"
    return name


def sendable(text: str) -> str:
    """Text that UTF-8 can carry."""
    # JSON can spell half of a surrogate pair ("\ud800"), which no UTF-8 can carry.
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
