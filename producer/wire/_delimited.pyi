from collections.abc import Sequence

from .text_column import SplitLines

def split_delimited(
    offsets: bytes | memoryview, data: bytes | memoryview, delimiter: int, names: Sequence[str]
) -> SplitLines: ...
