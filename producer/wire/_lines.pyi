from .lines import EncodedLines

def encode_lines(
    block: bytes | bytearray | memoryview,
    start: int,
    key: bytes,
    seconds: int,
    nanos: int,
    most_bytes: int,
    most_lines: int,
    final: bool,
) -> EncodedLines: ...
