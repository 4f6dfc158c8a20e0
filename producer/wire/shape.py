"""Shapes: what is known of logs that have the same field names in the same order, and runs of such logs.

For a shape functions are generated that look up, by the length of each value, the bytes that precede it, and join
everything as one latin-1 string, in which a character is a byte. ASCII text, the common case, is such a string already.

What precedes the fields in a record, its length and its time, is the same for all logs of a second but for the length:
it is put in front of many logs at once, when the body of their batch is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..errors import InvalidArgumentError
from .protobuf import delimited, varint
from .text import text_of

#: Of more fields no shape is made, characters of a name and fields of a log.
MAX_NAME = 256
MAX_FIELDS = 256
#: What the shapes of one encoder may occupy together, bytes.
MAX_SHAPES_BYTES = 8 * 1024 * 1024
# What a shape occupies, a field of it, and a length of that besides its text. Measured on CPython 3.11.
_SHAPE_BYTES, _FIELD_BYTES, _LENGTH_BYTES = 2048, 1536, 192
_MAX_HEADS_KEPT = 4096
_LOT = 128


class Room:
    """How many more bytes the shapes of one encoder may occupy. Threads may overshoot by a few.

    :ivar short: something was not kept for want of room.
    """

    __slots__ = ("left", "short")

    def __init__(self) -> None:
        self.left = MAX_SHAPES_BYTES
        self.short = False


class _Lengths(dict[int, str]):
    """For one field name: the bytes before a value, by the value's length, as a latin-1 string.

    They hold the name as well, so that a field costs one look-up. The table fills itself while there is room.
    """

    def __init__(self, name: str, room: Room) -> None:
        super().__init__()
        self._key = delimited(0x0A, name.encode())
        #: None once it shall keep nothing more.
        self.room: Room | None = room
        self.kept = 0  # bytes

    def __missing__(self, length: int) -> str:
        inner = self._key + b"\x12" + varint(length)
        text = (b"\x12" + varint(len(inner) + length) + inner).decode("latin-1")
        room, size = self.room, _LENGTH_BYTES + len(text)
        if room is None:
            return text
        if room.left < size:
            room.short = True
            return text
        room.left -= size
        self.kept += size
        self[length] = text
        return text


class Shape:
    """Logs with these names.

    :ivar names: the names of the fields.
    :ivar fields_of: from the values of a log, in this order, its fields as a latin-1 string; None if a value is not
        ``str`` itself, or not valid Unicode.
    :ivar used: whether it was used since somebody looked for one that is not.
    """

    __slots__ = ("_join", "_lengths", "_room", "fields_of", "names", "used")

    def __init__(self, names: tuple[str, ...], room: Room) -> None:
        self.names = names
        self.used = True
        self._room = room
        room.left -= self.size_of(names)
        self._lengths = [_Lengths(name, room) for name in names]
        self.fields_of, self._join = _generate(self._lengths)

    @staticmethod
    def size_of(names: tuple[str, ...]) -> int:
        """What a shape of these names occupies before it has seen any log, bytes."""
        return _SHAPE_BYTES + sum(_FIELD_BYTES + 2 * len(name.encode()) for name in names)

    def give_up(self) -> None:
        """Give its room back; whoever goes on using it adds nothing to it."""
        for lengths in self._lengths:
            lengths.room = None
        self._room.left += self.size_of(self.names) + sum(lengths.kept for lengths in self._lengths)

    @staticmethod
    def makes_sense(names: tuple[Any, ...]) -> bool:
        """Whether logs with these names can have a shape, within the bounds of this module."""
        return 0 < len(names) <= MAX_FIELDS and all(
            type(name) is str and len(name) <= MAX_NAME and _is_unicode(name) for name in names
        )

    def fields_of_any(self, log: Mapping[str, Any]) -> str:
        """As ``fields_of``, of a log with these names, whatever its values.

        :raises InvalidArgumentError: a value that cannot become text.
        """
        texts = [_latin(value, name) for name, value in log.items()]
        if None not in texts:
            return self._join(texts)
        present = [(lengths, text) for lengths, text in zip(self._lengths, texts, strict=True) if text is not None]
        return "".join([f"{lengths[len(text)]}{text}" for lengths, text in present])


def _latin(value: Any, name: str) -> str | None:
    if type(value) is str and value.isascii():  # the common case
        return value
    return None if value is None else data_of(value, name).decode("latin-1")


def data_of(value: Any, name: str) -> bytes:
    """The bytes that travel for a value that is not None.

    :param name: the field, for the error.
    :raises InvalidArgumentError: it cannot become text, or the text is not valid Unicode.
    """
    text = text_of(value, name)
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"field {name!r}: the text is not valid Unicode ({error}); send bytes, or replace the surrogates"
        ) from error


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


_Fields = Callable[[Collection[Any]], str | None]
_Join = Callable[[Collection[Any]], str]


def _generate(tables: Sequence[_Lengths]) -> tuple[_Fields, _Join]:
    """``fields_of`` of a :class:`Shape`; and what joins the fields of values that are latin-1 strings already.

    No text of the caller's becomes code: names stand in the look-up tables, and values are variables.
    """
    values = [f"v{i}" for i in range(len(tables))]
    pieces = "".join(f"{{n{i}[len(v{i})]}}{{v{i}}}" for i in range(len(tables)))
    to_latin = "".join(
        f"            if not {value}.isascii():\n                {value} = {value}.encode().decode('latin-1')\n"
        for value in values
    )
    # What precedes a long value is not ASCII itself; only then the values are looked at alone.
    source = (
        f"def fields_of(values):\n"
        f"    {', '.join(values)}, = values\n"
        f"    if {' and '.join(f'type({value}) is str' for value in values)}:\n"
        f"        fields = f'{pieces}'\n"
        f"        if fields.isascii() or ({' and '.join(f'{value}.isascii()' for value in values)}):\n"
        f"            return fields\n"
        f"        try:\n"
        f"{to_latin}"
        f"        except UnicodeEncodeError:\n"
        f"            return None\n"
        f"        return f'{pieces}'\n"
        f"def join(values):\n"
        f"    {', '.join(values)}, = values\n"
        f"    return f'{pieces}'\n"
    )
    scope: dict[str, Any] = {f"n{i}": lengths for i, lengths in enumerate(tables)}
    exec(compile(source, "<generated log encoder>", "exec"), scope)  # noqa: S102  # see the docstring
    return scope["fields_of"], scope["join"]


class Heads(dict[int, str]):
    """What precedes the fields in the records of one second, by the size of the fields, as latin-1 strings.

    :param now: seconds since the epoch.
    :ivar now: likewise.
    :ivar time: the Time field.
    """

    def __init__(self, now: int) -> None:
        super().__init__()
        self.now = now
        self.time = b"\x08" + varint(now)
        self._time = self.time.decode("latin-1")

    def __missing__(self, size: int) -> str:
        head = (b"\x0a" + varint(len(self.time) + size)).decode("latin-1") + self._time
        if len(self) < _MAX_HEADS_KEPT:
            self[size] = head
        return head


class Run:
    """Logs of one second that stand in a batch one behind the other, encoded but for what precedes their fields.

    :ivar fields: for each log its fields, a latin-1 string.
    """

    __slots__ = ("_heads", "fields")

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self.fields: list[str] = []

    def encode(self) -> list[bytes]:
        """The records of the logs, joined in lots that fit the processor's caches."""
        fields = self.fields
        return [join_records(self._heads, fields[start : start + _LOT]) for start in range(0, len(fields), _LOT)]


def join_records(heads: Heads, fields: list[str]) -> bytes:
    """The records of logs of one second, joined.

    :param fields: for each log its fields, a latin-1 string.
    """
    parts = fields * 2
    parts[0::2] = map(heads.__getitem__, map(len, fields))
    parts[1::2] = fields
    return "".join(parts).encode("latin-1")
