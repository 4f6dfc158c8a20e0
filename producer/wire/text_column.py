"""A column of texts as bytes, in which parsers, channels, encoders and Arrow exchange texts.

Each value has a size; the size ``ABSENT`` marks a missing value. The values are concatenated.

Example: the column ``"ab"``, None, ``""``, ``"c"`` has the sizes 2, ``ABSENT``, 0 and 1, and the data ``abc``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import AnyStr, NamedTuple, cast, overload

from .encodings import is_valid_utf8

#: The size of a missing value.
ABSENT = 0xFFFFFFFF

_ABSENT = ABSENT.to_bytes(4, "little")


class TextColumn(Sequence["str | None"]):
    """A column of texts, which are decoded when the first one is read.

    :ivar sizes: the size of each value in bytes, or ``ABSENT``; 32-bit integers in native byte order.
    :ivar data: the concatenated values; UTF-8, which may include lone surrogates.
    """

    __hash__ = None  # type: ignore[assignment]  # a column compares as a list does
    __slots__ = ("_texts", "data", "sizes")

    def __init__(self, sizes: bytes, data: bytes) -> None:
        self.sizes, self.data = sizes, data
        self._texts: list[str | None] | None = None

    @classmethod
    def of(cls, values: Sequence[str | None]) -> TextColumn:
        """Pack values; a column is returned unchanged."""
        if isinstance(values, TextColumn):
            return values
        whole = None not in values
        text = "".join(cast("Sequence[str]", values) if whole else [value for value in values if value is not None])
        if text.isascii():  # In ASCII, characters are bytes.
            sizes = list(map(len, cast("Sequence[str]", values))) if whole else list(map(_size, values))
            return cls(array("I", sizes).tobytes(), text.encode())
        return cls.of_bytes([None if value is None else value.encode(errors="surrogatepass") for value in values])

    @classmethod
    def of_bytes(cls, values: Sequence[bytes | None]) -> TextColumn:
        """Pack encoded values."""
        sizes = array("I", map(_size, values)).tobytes()
        return cls(sizes, b"".join([value for value in values if value is not None]))

    @property
    def is_empty(self) -> bool:
        """True if there is no value."""
        return not self.data and self.sizes == _ABSENT * len(self)

    @property
    def is_encodable(self) -> bool:
        """True if UTF-8 can encode every value."""
        return is_valid_utf8(self.data)

    def texts(self) -> list[str | None]:
        """Decode all values.

        :raises UnicodeDecodeError: the data is not UTF-8.
        """
        if self._texts is None:
            if self.data.isascii():
                self._texts = _divided(self.sizes, self.data.decode())
            else:
                values = self.values()
                self._texts = [None if value is None else value.decode(errors="surrogatepass") for value in values]
        return self._texts

    def values(self) -> list[bytes | None]:
        """Return the values without decoding them."""
        return _divided(self.sizes, self.data)

    def __len__(self) -> int:
        return len(self.sizes) // 4

    @overload
    def __getitem__(self, index: int) -> str | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[str | None]: ...
    def __getitem__(self, index: int | slice) -> str | list[str | None] | None:
        return self.texts()[index]

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.texts())

    def count(self, value: object) -> int:
        return array("I", self.sizes).count(ABSENT) if value is None else super().count(value)

    def __eq__(self, other: object) -> bool:
        return self.texts() == list(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(self.texts())


class SplitLines(NamedTuple):
    """The fields of some lines.

    :ivar known: a byte per line: 1 if the line has the format, else 0.
    :ivar columns: the values of each field, by name.
    """

    known: bytes
    columns: dict[str, TextColumn]


def _size(value: str | bytes | None) -> int:
    return ABSENT if value is None else len(value)


def _divided(sizes: bytes, values: AnyStr) -> list[AnyStr | None]:
    each, at = array("I", sizes), 0
    if ABSENT not in each:
        return [values[begin:end] for begin, end in pairwise(accumulate(each, initial=0))]
    return [None if size == ABSENT else values[at : (at := at + size)] for size in each]
