"""Bodies that a client may send: protobuf, compressed data, JSON, and garbage."""

import json
import random
from typing import Any

from producer.wire.compression import COMPRESSIONS, compress
from producer.wire.schema import LogGroup, LogPackageList

Dice = random.Random

_TEXTS = ["", "a", "message", "é", "磁盘", "\x00", "a b", "x" * 300, "__topic__", "\U0001f600"]


def varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def flip(dice: Dice, data: bytes) -> bytes:
    """Change some bytes, or cut out, insert or repeat some."""
    changed = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 5, 20])):
        place, size = dice.randrange(len(changed) + 1), dice.choice([1, 1, 4, 100])
        what = dice.randrange(4)
        if what == 0 and place < len(changed):
            changed[place] ^= 1 << dice.randrange(8)
        elif what == 1:
            del changed[place : place + size]
        elif what == 2:
            changed[place:place] = dice.randbytes(size)
        else:
            changed[place:place] = changed[place : place + size]
    return bytes(changed)


def log_group(dice: Dice) -> bytes:
    group = LogGroup()
    for _ in range(dice.choice([1, 1, 2, 5, 100])):
        log = group.Logs.add(Time=dice.choice([0, 1, 1_700_000_000, 0xFFFFFFFF]))
        if dice.random() < 0.3:
            log.Time_ns = dice.choice([0, 1, 999_999_999, 0xFFFFFFFF])
        for _ in range(dice.choice([0, 1, 1, 3])):
            value = dice.choice([b"", b"x", b"\xff\xfe", dice.randbytes(20), b"word " * 50])
            log.Contents.add(Key=dice.choice(_TEXTS), Value=value)
    if dice.random() < 0.5:
        group.Topic, group.Source = dice.choice(_TEXTS), dice.choice(_TEXTS)
        group.LogTags.add(Key=dice.choice(_TEXTS), Value=dice.choice(_TEXTS))
    return bytes(group.SerializeToString())


def strange_group(dice: Dice) -> bytes:
    """Return fields of a LogGroup in forms that no library writes."""
    fields = [
        b"\x0a\x00",  # a log without a time
        b"\x0a\x02\x08\x01",  # the smallest log
        b"\x0a" + varint(dice.choice([1 << 31, 1 << 40, 5])),  # a length beyond the end
        b"\x0a\x0c\x08\x01\x12\x08\x0a\x02\xff\xfe\x12\x02\x41\x42",  # a key that is not UTF-8
        b"\x1a\x01\xff",  # a topic that is not UTF-8
        b"\x32\x02\x0a\x00",  # a tag without a value
        b"\x0b" * 200 + b"\x0c" * 200,  # nested groups
        b"\x0a\x02\x08\x01" * dice.choice([10, 1000, 200_000]),  # many logs
        b"\x32\x04\x0a\x00\x12\x00" * dice.choice([10, 100_000]),  # many tags
        b"\x0a\x0c\x08" + b"\xff" * 9 + b"\x01\x00",  # a time beyond its type
        varint(dice.randrange(1 << 32)) + dice.randbytes(dice.randrange(20)),
    ]
    return b"".join(dice.choices(fields, k=dice.choice([1, 2, 4])))


def raw_body(dice: Dice) -> bytes:
    """Return the uncompressed body of a write: valid, nearly valid, strange, or random."""
    what = dice.randrange(10)
    if what < 4:
        return log_group(dice)
    if what < 7:
        return flip(dice, log_group(dice))
    return strange_group(dice) if what < 9 else dice.randbytes(dice.choice([0, 1, 50, 5000]))


def compressed(dice: Dice, raw: bytes, name: str) -> bytes:
    """Return ``raw`` compressed, mostly with ``name``, mostly undamaged."""
    actual = name if dice.random() < 0.9 else dice.choice(COMPRESSIONS)
    data = compress(raw, actual if actual in COMPRESSIONS else "none")
    return data if dice.random() < 0.85 else flip(dice, data)


def packages(dice: Dice) -> bytes:
    batch = LogPackageList()
    for _ in range(dice.choice([0, 1, 2, 5, 5000])):
        raw = raw_body(dice) if len(batch.packages) < 5 else b"\x0a\x02\x08\x01"
        kind = dice.choice([0, 1, 2, 3, 3, 2, 9])
        names = {0: "none", 1: "deflate", 2: "lz4", 3: "zstd"}
        package = batch.packages.add(data=compressed(dice, raw, names.get(kind, "none")), compress_type=kind)
        if dice.random() < 0.9:
            package.uncompress_size = dice.choice([len(raw), len(raw), len(raw), 0, -1, 2**31 - 1, len(raw) + 1])
    data = bytes(batch.SerializeToString())
    return data if dice.random() < 0.8 else flip(dice, data)


def json_value(dice: Dice, depth: int = 0) -> Any:
    simple = [None, True, -1, 0, 5, 1.5, 1e300, 10**30, "x", "30", *_TEXTS]
    if depth > 3 or dice.random() < 0.7:
        return dice.choice(simple)
    if dice.random() < 0.5:
        return [json_value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {dice.choice(_TEXTS): json_value(dice, depth + 1) for _ in range(dice.randrange(4))}


def json_body(dice: Dice, good: dict[str, Any]) -> bytes:
    """Return a JSON body: ``good`` with some values replaced, or JSON that parsers reject."""
    content = {name: value if dice.random() < 0.7 else json_value(dice) for name, value in good.items()}
    data = json.dumps(content).encode()
    what = dice.randrange(12)
    if what == 0:
        return flip(dice, data)
    if what == 1:
        return dice.choice(
            [b"[" * 30_000, b'{"a":' * 9000, b"NaN", b'{"ttl": NaN}', b'{"a": "\\ud800"}', b"", b"1" * 5000]
        )
    return data


_WORDS = [
    "error",
    "x",
    "msg*",
    "*",
    '"a b"',
    "message",
    "__topic__",
    "é",
    '"',
    "\\",
    "|",
    "and",
    "or",
    "not",
    ":",
    "(",
    ")",
]


def query(dice: Dice) -> str:
    """Return a query of GetLogs: by its grammar, or random words and signs."""
    if dice.random() < 0.5:
        return _good_query(dice, 0)
    words = dice.choices(_WORDS, k=dice.choice([0, 1, 5, 50, 200]))
    return dice.choice([" ", "", "  "]).join(words) * dice.choice([1, 1, 1, 30])


def _good_query(dice: Dice, depth: int) -> str:
    if depth > 5 or dice.random() < 0.4:
        word = dice.choice(_WORDS[:8])
        return word if dice.random() < 0.7 else f"message: {word}"
    one, other = _good_query(dice, depth + 1), _good_query(dice, depth + 1)
    return dice.choice([f"{one} {other}", f"{one} or {other}", f"({one})", f"not ({one})", f"{one} and {other}"])
