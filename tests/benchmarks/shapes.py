"""Make the logs that are sent, from a fixed seed, so that every client sends the same ones.

The module needs only the standard library, since peers run in their own environment.
"""

import base64
import random
from collections.abc import Callable
from pathlib import Path

Log = dict[str, str]
#: The message of the logging libraries' records, whose fields are a log.
MESSAGE = "request served"

#: Number of different logs of a shape, which a client sends repeatedly. It is a prime number: if logs and streams are
#: taken in turn, each stream gets all logs, and not the same few, which would compress too well.
VARIETY = 1009
#: Topics and sources of the Java producer's benchmark, and of the shape ``java``.
TOPICS, SOURCES = 5, 10

_BROWSERS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_1) Version/17.1 Safari",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Gecko/2010 Firefox/121",
)
_WORDS = (
    "日志服务",
    "写入失败",
    "重试",
    "Größe überschritten",
    "Überlauf",
    "запись принята",
    "очередь",
    "メモリ不足",
    "🚀",
)


def _java(choose: random.Random) -> Log:
    """Return a log of the Java producer's benchmark: 8 fields, about 600 bytes."""
    return {f"content_key_{n}": f"{n}-abcdefghijklmnopqrstuvwxyz!@#$%^&*()_0123456789-{choose.getrandbits(30)}"
            for n in range(1, 9)}  # fmt: skip


def _web(choose: random.Random) -> Log:
    """Return a record of an access log: 6 fields, about 235 bytes."""
    return {
        "remote_addr": f"192.168.{choose.randrange(256)}.{choose.randrange(256)}",
        "request": f"GET /api/v1/items/{choose.randrange(10**6)}?verbose=true HTTP/1.1",
        "status": choose.choice(("200", "200", "200", "304", "404", "500")),
        "bytes": str(choose.randrange(10**6)),
        "referer": "https://www.example.com/catalogue/items/list",
        "user_agent": choose.choice(_BROWSERS),
    }


def _wide(choose: random.Random) -> Log:
    return {f"attribute_{n:02d}": f"value-{choose.randrange(10**6)}" for n in range(40)}


def _unicode(choose: random.Random) -> Log:
    """Return a log of 6 fields, of which 3 have non-ASCII text."""
    text = [" ".join(choose.choices(_WORDS, k=3)) for _ in range(3)]
    return {
        "host": f"web-{choose.randrange(100)}",
        "level": choose.choice(("INFO", "ERROR")),
        "code": str(choose.randrange(1000)),
        "message": text[0],
        "原因": text[1],
        "user": text[2],
    }


def _names(choose: random.Random) -> Log:
    """Return a log of 12 fields of 16 bytes, with names from a set of 200."""
    return {f"field_{n}": f"{choose.getrandbits(52):016d}"[:16] for n in choose.sample(range(200), 12)}


def _line(choose: random.Random) -> Log:
    """Return a line of an access log, as :meth:`~producer.Stream.send_lines` sends it: about 235 bytes."""
    log = _web(choose)
    moment = f"22/Nov/2026:10:{choose.randrange(60):02d}:{choose.randrange(60):02d} +0000"
    first = f'{log["remote_addr"]} - - [{moment}] "{log["request"]}" {log["status"]} {log["bytes"]}'
    return {"content": f'{first} "{log["referer"]}" "{log["user_agent"]}"'}


_SHAPES: dict[str, Callable[[random.Random], Log]] = {
    "java": _java,
    "web": _web,
    "wide": _wide,
    "unicode": _unicode,
    "names": _names,
    "lines": _line,
}
#: The names that :func:`logs_of` knows; a file's path is valid, too, and its lines become logs.
SHAPES = tuple(_SHAPES)


def logs_of(shape: str) -> list[Log]:
    """Return the different logs of a shape.

    :param shape: one of :data:`SHAPES`; ``fields=N`` for N fields of 16 bytes; ``length=N`` for one field of N bytes;
        else a path, whose first lines are the logs.
    """
    choose = random.Random(5)  # the same names each time
    kind, _, number = shape.partition("=")
    if kind == "fields":
        return [
            {f"field_{n}": f"{choose.getrandbits(52):016d}"[:16] for n in range(int(number))} for _ in range(VARIETY)
        ]
    if kind == "length":
        size = int(number)
        return [{"message": base64.b64encode(choose.randbytes(size)).decode()[:size]} for _ in range(VARIETY)]
    make = _SHAPES.get(shape)
    return [make(choose) for _ in range(VARIETY)] if make is not None else _lines_of(Path(shape))


def _lines_of(path: Path) -> list[Log]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        return [
            {"path": path.name, "message": line.rstrip("\n")} for line, _ in zip(lines, range(VARIETY), strict=False)
        ]


def size_of(log: Log) -> int:
    """Return the bytes of a log's names and values."""
    return sum(len(text.encode()) for pair in log.items() for text in pair)


def streams_of(count: int) -> list[tuple[str, str]]:
    """Return the topic and source of ``count`` streams; 50 streams are those of the Java producer's benchmark."""
    sources = SOURCES if count >= SOURCES else 1
    return [(f"topic-{n // sources}", f"source-{n % sources}") for n in range(count)]
