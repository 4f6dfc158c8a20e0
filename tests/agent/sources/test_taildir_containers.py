"""taildir on container logs: parts are joined, then lines of multi-line events, for each stream."""

import json
import random
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from producer.agent.sources.reading import reader
from producer.agent.sources.reading.containers import ContainerLines
from producer.agent.sources.taildir import TaildirSource
from producer.model.errors import ConfigError

from .following import Tail, Writer

SECOND = 1_475_713_029
TIME = "2016-10-06T00:17:09.669794202Z"


def line(text: str, tag: str = "F", stream: str = "stdout", fraction: str = ".669794202") -> bytes:
    return f"2016-10-06T00:17:09{fraction}Z {stream} {tag} {text}\n".encode()


def docker(text: str, stream: str = "stdout", fraction: str = ".669794202") -> bytes:
    time = f"2016-10-06T00:17:09{fraction}Z"
    return json.dumps({"log": text, "stream": stream, "time": time}, separators=(",", ":")).encode() + b"\n"


def tail(tmp_path: Path) -> tuple[Tail, Writer]:
    followed = Tail(tmp_path, line_format="cri", multiline_timeout=5.0)
    return followed, Writer(followed.logs / "pod.log")


def test_parts_are_joined_for_each_stream(tmp_path: Path) -> None:
    """Parts are joined for each stream, in the order of the last parts, with headers of the stream and first time."""
    followed, pod = tail(tmp_path)
    pod.append(line("one ", "P", fraction=".1") + line("bad ", "P", "stderr") + line("two ", "P") + line("three"))
    pod.append(line("news", "F:x", "stderr", ""))
    followed.look()
    (batch,) = followed.batches()
    assert list(batch.events()) == [
        ({"stream": "stdout", "time": "2016-10-06T00:17:09.1Z", "timestamp": f"{SECOND}100"}, b"one two three"),
        ({"stream": "stderr", "time": "2016-10-06T00:17:09.669794202Z", "timestamp": f"{SECOND}669"}, b"bad news"),
    ]


def test_a_header_with_one_value_is_shared_empty_texts_are_events(tmp_path: Path) -> None:
    """A header with one value is shared; empty texts are events."""
    followed, pod = tail(tmp_path)
    pod.append(line("a P ") + line("") + line("b").replace(b"F b\n", b"F\n"))
    followed.look()
    (batch,) = followed.batches()
    assert batch.bodies() == [b"a P ", b"", b""]
    assert batch.shared["stream"] == "stdout"


def test_the_position_stops_before_a_part_without_its_end(tmp_path: Path) -> None:
    """The position stops before a part without its end; after a restart the line arrives whole, and once."""
    followed, pod = tail(tmp_path)
    pod.append(line("whole") + line("half", "P") + line("between", stream="stderr"))
    assert followed.seen() == [b"whole"]
    followed.restart()
    assert followed.seen(1.0) == []
    pod.append(line(" and half") + line("after"))
    assert followed.seen(1.0) == [b"between", b"half and half", b"after"]
    followed.restart()
    assert followed.seen(1.0) == []


def test_parts_are_joined_over_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are joined across blocks, also if a block ends within a line."""
    monkeypatch.setattr(reader, "BLOCK_BYTES", 100)
    followed, pod = tail(tmp_path)
    texts = [f"{number:03}" * (number % 30) for number in range(60)]
    for text in texts:
        halves = text[:20], text[20:40], text[40:]
        pod.append(b"".join(line(half, tag) for half, tag in zip(halves, "PPF", strict=True)))
        pod.append(line("e", "PF"[len(text) % 2], "stderr"))
    pod.append(line("end", stream="stderr"))
    seen = followed.seen()
    assert [body for body in seen if (body.strip(b"e") and body[-3:] != b"end") or body == b""] == [
        text.encode() for text in texts
    ]
    assert b"".join(body for body in seen if body and not body.strip(b"end")).count(b"e") == 61


def test_a_part_without_its_end_is_an_event_once_the_file_has_rested_for_multiline_timeout(tmp_path: Path) -> None:
    """A part without its end is an event once the file has rested for multiline_timeout."""
    followed, pod = tail(tmp_path)
    pod.append(line("last words", "P"))
    assert followed.seen(1.0) == []
    assert followed.seen(5.0) == [b"last words"]


def test_a_part_does_not_hold_up_the_other_stream_for_long(tmp_path: Path) -> None:
    """A part without its end is an event once the other stream has a line that is multiline_timeout later."""
    followed, pod = tail(tmp_path)
    pod.append(line("half", "P", "stderr"))
    seen: list[bytes] = []
    for number in range(6):
        pod.append(line(f"{number}").replace(b":09", b":%02d" % (10 + number)))
        seen += followed.seen(1.0)
        assert (b"0" in seen) == (number == 5)
    assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4", b"5", b"half"]


def test_a_line_whose_parts_exceed_max_line_bytes_is_split_without_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line whose parts exceed max_line_bytes is split without a loss."""
    monkeypatch.setattr(reader, "BLOCK_BYTES", 1024)
    followed = Tail(tmp_path, line_format="cri", max_line_bytes=1024)
    Writer(followed.logs / "pod.log").append(b"".join(line("x" * 500, "P") for _ in range(5)) + line("y"))
    seen = followed.seen()
    assert len(seen) > 1
    assert b"".join(seen) == b"x" * 2500 + b"y"


def test_a_line_in_another_format_is_an_event_without_headers_an_invalid_time_gives_no_timestamp(
    tmp_path: Path,
) -> None:
    """A line in another format is an event without headers; an invalid time gives no timestamp."""
    followed, pod = tail(tmp_path)
    pod.append(b'{"log":"docker"}\nnoon stdout F a\r\n')
    followed.look()
    (batch,) = followed.batches()
    assert list(batch.events()) == [({}, b'{"log":"docker"}'), ({"stream": "stdout", "time": "noon"}, b"a")]


@pytest.mark.parametrize("data", [line("a P") + line("b"), docker("a\n") + docker("b\n")])
def test_without_partial_lines_whole_events_end_at_the_last_line_end_found_without_a_step(data: bytes) -> None:
    """Without partial lines whole events end at the last line end, found without parsing the lines."""
    lines = ContainerLines("containers", None)
    lines._events = None  # type: ignore[assignment,method-assign]
    assert lines.whole_end(data, 5.0) == len(data)


def test_the_parts_of_a_line_are_joined_before_lines_of_a_multi_line_event(tmp_path: Path) -> None:
    """Parts are joined before lines of a multi-line event; each stream has its own events, with the first time."""
    followed = Tail(tmp_path, line_format="cri", multiline_start=r"\d+ ", multiline_timeout=5.0)
    pod = Writer(followed.logs / "pod.log")
    pod.append(line("1 a", fraction=".1") + line("  at ", "P") + line("9 err", "F", "stderr"))
    pod.append(line("2 is no start") + line("  in err", "F", "stderr") + line("3 b"))
    followed.look()
    assert followed.batches() == []  # stderr's event may go on
    followed.look(5.0)
    (batch,) = followed.batches()
    assert list(batch.events()) == [
        (
            {"stream": "stdout", "time": "2016-10-06T00:17:09.1Z", "timestamp": f"{SECOND}100"},
            b"1 a\n  at 2 is no start",
        ),
        ({"stream": "stderr", "time": TIME, "timestamp": f"{SECOND}669"}, b"9 err\n  in err"),
        ({"stream": "stdout", "time": TIME, "timestamp": f"{SECOND}669"}, b"3 b"),
    ]


def test_lines_of_dockers_json_file_are_read_and_their_parts_joined(tmp_path: Path) -> None:
    """Lines of Docker's json-file driver are read, and parts without a line end joined with those that follow."""
    followed = Tail(tmp_path, line_format="docker")
    pod = Writer(followed.logs / "c-json.log")
    pod.append(docker("one ") + docker("bad\r\n", "stderr") + docker('"two"\\n') + docker(" \u00fc\n", fraction=".2"))
    pod.append(
        docker("\n").replace(b',"time', b',"attrs":{"tag":"x"},"time')
        + b'{"log":"x\\q\\n","stream":"stdout","time":"t"}\n'
    )
    pod.append(json.dumps({"time": "noon", "log": "any order\n", "stream": "stderr"}).encode() + b"\nplain\n[1]\n")
    followed.look()
    (batch,) = followed.batches()
    assert [(headers.get("stream"), body) for headers, body in batch.events()] == [
        ("stderr", b"bad"),
        ("stdout", 'one "two"\\n ü'.encode()),
        ("stdout", b""),
        ("stdout", b"x\\q"),
        ("stderr", b"any order"),
        (None, b"plain"),
        (None, b"[1]"),
    ]


def test_containers_reads_either_format(tmp_path: Path) -> None:
    """``containers`` recognizes the format of each file."""
    followed = Tail(tmp_path, line_format="containers")
    Writer(followed.logs / "a.log").append(line("a ", "P") + line("b"))
    Writer(followed.logs / "b.log").append(docker("c ") + docker("d\n"))
    assert sorted(followed.seen()) == [b"a b", b"c d"]


@pytest.mark.parametrize("seed", range(40))
def test_interleaved_streams_arrive_whole_whatever_the_reads_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Interleaved parts and multi-line events arrive whole and once, whatever the reads and restarts."""
    chance = random.Random(seed)
    monkeypatch.setattr(reader, "BLOCK_BYTES", chance.choice([100, 700, 1 << 20]))
    form, start = chance.choice(["cri", "docker"]), chance.choice([None, "[0-9]+ "])
    options = {} if start is None else {"multiline_start": start}
    followed = Tail(tmp_path, line_format="containers", **options)
    pod, seen, expected = Writer(followed.logs / "pod.log"), [], []
    rows: dict[str, list[tuple[str, bool]]] = {"stdout": [], "stderr": []}
    for stream, queue in rows.items():
        for number in range(chance.choice([3, 60])):
            lines = [f"{number} {stream}", *(f"  at {n}" * n for n in range(chance.choice([0, 0, 3])))]
            expected += [line.encode() for line in lines] if start is None else ["\n".join(lines).encode()]
            for text in lines:
                cuts = sorted(chance.sample(range(1, len(text) or 1), chance.choice([0, 0, min(2, len(text) // 2)])))
                parts = [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])]
                queue += [(part, number == len(cuts)) for number, part in enumerate(parts)]
    at = datetime(2024, 1, 1)
    while any(rows.values()):
        stream = chance.choice([name for name, queue in rows.items() if queue])
        text, last = rows[stream].pop(0)
        at += timedelta(milliseconds=1)
        tag = "F" if last else "P"
        made = line(text, tag, stream) if form == "cri" else docker(text + "\n" * last, stream)
        pod.append(made.replace(b"2016-10-06T00:17:09.669794202Z", at.isoformat().encode() + b"Z"))
        if chance.random() < 0.1:
            seen += followed.seen(1.0)
        if chance.random() < 0.02:
            followed.restart()
    seen += followed.seen(1.0)
    seen += followed.seen(5.0)
    assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize("busy", [False, True])
def test_a_seldom_stream_does_not_split_events_of_the_busy_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """One line of a seldom stream neither holds the busy stream for long nor splits its events."""
    monkeypatch.setattr(reader, "BLOCK_BYTES", 1024)
    followed = Tail(tmp_path, line_format="cri", multiline_start="[0-9]+ ", max_line_bytes=20 << 10)
    pod, seen, expected = Writer(followed.logs / "pod.log"), [], []
    pod.append(line("0 once", "F", "stderr"))
    for number in range(40):
        body = [f"{number} busy", *["  at some place" * (200 if busy else 1)] * 3]
        expected.append("\n".join(body).encode())
        pod.append(b"".join(line(text) for text in body[:2]).replace(b":09", b":%02d" % (10 + number)))
        seen += followed.seen(1.0)
        pod.append(b"".join(line(text) for text in body[2:]).replace(b":09", b":%02d" % (10 + number)))
    assert len(seen) > 30
    seen += followed.seen(1.0) + followed.seen(5.0)
    assert [body for body in seen if body != b"0 once"] == expected


def test_options_that_exclude_line_formats_of_containers_are_refused_before_the_start() -> None:
    """Options that exclude line formats of containers are refused before the start."""
    for line_format in ("cri", "docker", "containers"):
        with pytest.raises(ConfigError, match="cannot be used with"):
            TaildirSource.Options(paths=("/a",), line_format=line_format, byte_offset_header=True)
        with pytest.raises(ConfigError, match=f"line_format = {line_format}"):
            TaildirSource.Options(paths=("/a",), line_format=line_format, encoding="utf-16")
