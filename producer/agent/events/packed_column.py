"""PackedColumn: a header's values as bytes, as channels keep them; they become text when somebody asks for one."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import cast, overload

from ...wire.event_records import ABSENT


class PackedColumn(Sequence["str | None"]):
    """See the module.

    :ivar sizes: of each value in bytes; ``ABSENT`` for none.
    :ivar raw: the values, one behind the other; UTF-8, in which surrogates may stand alone.
    """

    __hash__ = None  # type: ignore[assignment]  # it is like a list
    __slots__ = ("_texts", "raw", "sizes")

    def __init__(self, sizes: array[int], raw: bytes) -> None:
        self.sizes, self.raw = sizes, raw
        self._texts: list[str | None] | None = None

    @classmethod
    def of(cls, column: Sequence[str | None]) -> PackedColumn:
        """Values, packed if they are not. Of ASCII the characters are the bytes."""
        if isinstance(column, PackedColumn):
            return column
        whole = None not in column
        text = "".join(cast("Sequence[str]", column) if whole else [value for value in column if value is not None])
        if text.isascii():
            sizes = list(map(len, cast("Sequence[str]", column))) if whole else [_size(value) for value in column]
            return cls(array("I", sizes), text.encode())
        values = [None if value is None else value.encode(errors="surrogatepass") for value in column]
        return cls(array("I", map(_size, values)), b"".join([value for value in values if value is not None]))

    @property
    def filled(self) -> bool:
        """Whether there is a value at all."""
        return bool(self.raw) or any(size != ABSENT for size in self.sizes)

    @property
    def is_encodable(self) -> bool:
        """Whether every value is text that UTF-8 can carry."""
        if self.raw.isascii():
            return True
        try:
            self.raw.decode()
        except UnicodeDecodeError:
            return False
        return True

    def texts(self) -> list[str | None]:
        """All values; they are made once.

        :raises UnicodeDecodeError: the bytes are none.
        """
        if self._texts is None:
            self._texts = self._ascii() if self.raw.isascii() else self._any()
        return self._texts

    def _ascii(self) -> list[str | None]:
        """The characters are the bytes."""
        text, at = self.raw.decode(), 0
        if ABSENT not in self.sizes:
            return [text[begin:end] for begin, end in pairwise(accumulate(self.sizes, initial=0))]
        return [None if size == ABSENT else text[at : (at := at + size)] for size in self.sizes]

    def _any(self) -> list[str | None]:
        raw, at = self.raw, 0
        values = [None if size == ABSENT else raw[at : (at := at + size)] for size in self.sizes]
        return [None if value is None else value.decode(errors="surrogatepass") for value in values]

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> str | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[str | None]: ...
    def __getitem__(self, index: int | slice) -> str | list[str | None] | None:
        return self.texts()[index]

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.texts())

    def __eq__(self, other: object) -> bool:
        return self.texts() == list(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(self.texts())


def _size(value: str | bytes | None) -> int:
    return ABSENT if value is None else len(value)
