"""taildir on containers' logs, as Kubernetes' runtimes write them: parts are joined, and never half delivered."""

from pathlib import Path

import pytest

from producer.agent.sources.reading import reader
from producer.agent.sources.reading.cri import whole_end
from producer.agent.sources.taildir import TaildirSource
from producer.model.errors import ConfigError

from .following import Tail, Writer

SECOND = 1_475_713_029


def line(text: str, tag: str = "F", stream: str = "stdout", fraction: str = ".669794202") -> bytes:
    return f"2016-10-06T00:17:09{fraction}Z {stream} {tag} {text}\n".encode()


def tail(tmp_path: Path) -> tuple[Tail, Writer]:
    followed = Tail(tmp_path, line_format="cri", multiline_timeout=5.0)
    return followed, Writer(followed.logs / "pod.log")


def test_parts_are_joined_for_each_stream(tmp_path: Path) -> None:
    """In the order of their last parts; with the stream, and the time of the first part, as headers."""
    followed, pod = tail(tmp_path)
    pod.append(line("one ", "P", fraction=".1") + line("bad ", "P", "stderr") + line("two ", "P") + line("three"))
    pod.append(line("news", "F:x", "stderr", ""))
    followed.look()
    (batch,) = followed.batches()
    assert list(batch.events()) == [
        ({"stream": "stdout", "time": "2016-10-06T00:17:09.1Z", "timestamp": f"{SECOND}100"}, b"one two three"),
        ({"stream": "stderr", "time": "2016-10-06T00:17:09.669794202Z", "timestamp": f"{SECOND}669"}, b"bad news"),
    ]


def test_a_header_that_all_lines_share_is_one(tmp_path: Path) -> None:
    """As for other batches; empty texts are events."""
    followed, pod = tail(tmp_path)
    pod.append(line("a P ") + line("") + line("b").replace(b"F b\n", b"F\n"))
    followed.look()
    (batch,) = followed.batches()
    assert batch.bodies() == [b"a P ", b"", b""]
    assert batch.shared["stream"] == "stdout"


def test_the_position_does_not_pass_a_part_whose_end_is_missing(tmp_path: Path) -> None:
    """What stands before it is taken; after a restart the line comes whole, and once."""
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
    """Wherever a block ends, also within a line."""
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


def test_a_part_whose_end_never_comes_is_taken_as_it_is(tmp_path: Path) -> None:
    """Once the file has rested for multiline_timeout: its container is dead."""
    followed, pod = tail(tmp_path)
    pod.append(line("last words", "P"))
    assert followed.seen(1.0) == []
    assert followed.seen(5.0) == [b"last words"]


def test_a_part_does_not_hold_up_the_other_stream_for_long(tmp_path: Path) -> None:
    """After multiline_timeout it is taken as it is, though the file goes on."""
    followed, pod = tail(tmp_path)
    pod.append(line("half", "P", "stderr"))
    seen: list[bytes] = []
    for number in range(6):
        pod.append(line(f"{number}"))
        seen += followed.seen(1.0)
        assert (b"0" in seen) == (number == 5)
    assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4", b"5", b"half"]


def test_a_line_that_is_too_long_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its parts are more than max_line_bytes; nothing is lost."""
    monkeypatch.setattr(reader, "BLOCK_BYTES", 1024)
    followed = Tail(tmp_path, line_format="cri", max_line_bytes=1024)
    Writer(followed.logs / "pod.log").append(b"".join(line("x" * 500, "P") for _ in range(5)) + line("y"))
    seen = followed.seen()
    assert len(seen) > 1
    assert b"".join(seen) == b"x" * 2500 + b"y"


def test_other_lines_are_taken_as_they_are(tmp_path: Path) -> None:
    """Without headers; one whose time is none has no timestamp."""
    followed, pod = tail(tmp_path)
    pod.append(b'{"log":"docker"}\nnoon stdout F a\r\n')
    followed.look()
    (batch,) = followed.batches()
    assert list(batch.events()) == [({}, b'{"log":"docker"}'), ({"stream": "stdout", "time": "noon"}, b"a")]


def test_lines_without_parts_are_not_looked_at_one_by_one() -> None:
    """Whole events end where the last line ends."""
    data = line("a") + line("b")
    assert whole_end(data) == len(data)


@pytest.mark.parametrize("more", [{"multiline_start": "x"}, {"byte_offset_header": True}])
def test_what_goes_not_with_it_is_refused(more: dict[str, object]) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match="goes without"):
        TaildirSource.Options(paths=("/a",), line_format="cri", **more)  # type: ignore[arg-type]
