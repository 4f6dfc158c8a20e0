from .delimited import DelimitedLines

def split_delimited(
    offsets: bytes | memoryview, data: bytes | memoryview, delimiter: int, count: int
) -> DelimitedLines: ...
