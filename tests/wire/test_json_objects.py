"""JSON objects of foreign text: native code leaves to the parser of single lines what it does not know.

The sanitizers of ``.ci/sanitize`` run it as well, since the code has no checks of bounds of its own. ``FUZZ_ROUNDS``
asks for more lines.
"""

import json
import os
import random
from array import array
from itertools import accumulate

import pytest

from .twins import native

_SEEDS = [
    b'{"a":1,"b":"x","c":null,"d":[1,{"e":"f"}],"g":true}',
    b'{ "time" : "2026-01-02", "n" : -1.5 , "big": 1234567890123 , "o": [ 1 , { } ] }',
    rb'{"path":"a\\b\/\"\u00e9\n\t","s":["\n\"",1.5,-0.25e1]}',
    '{"ключ":"日本\U0001f600","deep":{"k":{"k":[[[["é"]]]]}}}'.encode(),
    b'{"x":' + b"[" * 28 + b"]" * 28 + b"}",
    b'{"x":{' + b",".join(b'"%d":%d' % (n, n) for n in range(15)) + b"}}",
    b"{" + b",".join(b'"k%d":""' % n for n in range(40)) + b"}",
    b"{}",
]
_PIECES = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\\u",
    b"\\u12",
    b"\xff",
    b"\xf0\x9f",
    b"\0",
    b"1e999",
    b"-",
    b"9" * 30,
    b"[" * 40,
    rb"\ud83d\ude00",
    b'"x":{',
    b"1e-07",
]


def _mutated(chance: random.Random) -> bytes:
    line = bytearray(chance.choice(_SEEDS))
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(line) + 1)
        action = chance.randrange(4)
        if action == 0:
            line[at : at + chance.randrange(1, 9)] = b""
        elif action == 1:
            line[at:at] = chance.choice(_PIECES)
        elif action == 2:
            line[at : at + 1] = bytes([chance.randrange(256)])
        else:
            del line[at:]
    return line.decode(errors="replace").replace("\n", "").encode()  # the columns of Arrow are valid UTF-8


def _expected(line: bytes) -> dict[str, str | None]:
    found = json.loads(line)
    return {
        key: value
        if value is None or isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        for key, value in found.items()
    }


@native
@pytest.mark.parametrize("seed", range(4))
def test_native_objects_are_those_of_json_whatever_the_text(seed: int) -> None:
    """Each line of any text that native code splits has the keys and values that Python's json finds in it."""
    from producer.wire._json_objects import split_objects

    chance = random.Random(seed)
    rounds, split = int(os.environ.get("FUZZ_ROUNDS", "100")), 0
    for _ in range(rounds):
        lines = [_mutated(chance) for _ in range(chance.randrange(1, 12))]
        offsets = array("i", accumulate(map(len, lines), initial=0))
        known, columns = split_objects(offsets, b"".join(lines))
        texts = {name: column.values() for name, column in columns.items()}
        for row, line in enumerate(lines):
            if not known[row]:
                continue
            found = {name: values[row] for name, values in texts.items() if values[row] is not None}
            wanted = {name: value.encode() for name, value in _expected(line).items() if value is not None}
            assert found == wanted, line
            split += 1
    assert split > rounds
