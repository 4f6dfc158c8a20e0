"""Values of many types have one text each, in a log and inside JSON, natively and purely."""

import collections
import dataclasses
import enum
import ipaddress
import json
import math
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from producer import InvalidArgumentError, LogItem, Producer, ProducerConfig
from producer.testing import RecordingSink
from producer.wire import log_group
from producer.wire.text import Fallback, text_of
from producer.wire.values import step_of
from tests.support.log_group_schema import contents_of
from tests.wire.test_log_group_twins import both
from tests.wire.twins import native

NOW = 1_700_000_000


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)
    NONE = None


class Level(enum.IntEnum):
    HIGH = 3


class Flags(enum.Flag):
    A = 1
    B = 2


class Name(enum.StrEnum):
    X = "x"


@dataclasses.dataclass
class Point:
    x: int
    when: datetime
    inner: Any = None
    hidden: dataclasses.InitVar[int] = 5


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    a: set[int]


@attrs.define
class Box:
    width: int
    colour: Colour


class Pair(NamedTuple):
    a: int
    b: str


class Model:
    """The attributes of a pydantic model that are used."""

    model_fields = {"a": int}  # noqa: RUF012

    def model_dump(self) -> dict[str, Any]:
        return {"a": 1, "secret": Secret()}


class OldModel:
    __fields__ = {"a": int}  # noqa: RUF012
    parse_obj = None

    def dict(self) -> dict[str, Any]:
        return {"a": Decimal("1.10")}


class Secret:
    def get_secret_value(self) -> str:
        return "hunter2"

    def __str__(self) -> str:
        return "**********"


UTC_TIME = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "The 'generic' unit", DeprecationWarning)  # NumPy warns about pandas 2.
    ONE_DAY = pd.Timedelta("1 day")

# The value, its text, and its JSON value if that is not the same text.
TABLE: list[tuple[Any, Any, Any]] = [
    (Colour.RED, "red", "red"),
    (Colour.PAIR, "[1,2]", [1, 2]),
    (Colour.NONE, None, None),
    (Level.HIGH, "3", 3),
    (Flags.A | Flags.B, "3", 3),
    (10**30, "1" + "0" * 30, 10**30),
    (Name.X, "x", "x"),
    (pathlib.PurePosixPath("/var/log/值"), "/var/log/值", "/var/log/值"),
    (timedelta(minutes=1, seconds=30.5), "90.5", "90.5"),
    (timedelta(days=-1), "-86400", "-86400"),
    (timedelta(microseconds=-1), "-0.000001", "-0.000001"),
    (ONE_DAY, "86400", "86400"),
    ({3, 1, 2}, "[1,2,3]", [1, 2, 3]),
    (frozenset({"b", "a"}), '["a","b"]', ["a", "b"]),
    ({"b": 1, "a": 2}.keys(), '["a","b"]', ["a", "b"]),
    (collections.deque([2, 1]), "[2,1]", [2, 1]),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000001"),
    (ipaddress.ip_address("10.0.0.1"), "10.0.0.1", "10.0.0.1"),
    (ipaddress.ip_network("fe80::/64"), "fe80::/64", "fe80::/64"),
    (ipaddress.ip_interface("10.0.0.1/8"), "10.0.0.1/8", "10.0.0.1/8"),
    (Fraction(1, 3), "1/3", "1/3"),
    (1 + 2j, "(1+2j)", "(1+2j)"),
    (UTC_TIME, "2026-01-02T03:04:05.000006+00:00", "2026-01-02T03:04:05.000006+00:00"),
    (pd.Timestamp(UTC_TIME), "2026-01-02T03:04:05.000006+00:00", "2026-01-02T03:04:05.000006+00:00"),
    (Point(1, UTC_TIME), '{"x":1,"when":"2026-01-02T03:04:05.000006+00:00","inner":null}', ...),
    (Point(1, UTC_TIME, Slotted({1})), '{"x":1,"when":"2026-01-02T03:04:05.000006+00:00","inner":{"a":[1]}}', ...),
    (Box(3, Colour.RED), '{"width":3,"colour":"red"}', ...),
    (Pair(1, "x"), '[1,"x"]', [1, "x"]),
    (Model(), '{"a":1,"secret":"**********"}', ...),
    (OldModel(), '{"a":"1.10"}', ...),
    (Secret(), "**********", "**********"),
    (np.bool_(True), "true", True),
    (np.int8(-3), "-3", -3),
    (np.uint64(2**64 - 1), "18446744073709551615", 2**64 - 1),
    (np.float64(0.1), "0.1", 0.1),
    (np.float32(0.1), "0.1", 0.1),
    (np.float16(0.1), "0.1", 0.1),
    (np.float32(math.inf), "inf", "inf"),
    (np.str_("a"), "a", "a"),
    (np.bytes_(b"a"), "a", "a"),
    (np.complex64(1 + 2j), "(1+2j)", "(1+2j)"),
    (np.datetime64("2026-01-02T03:04:05"), "2026-01-02T03:04:05", "2026-01-02T03:04:05"),
    (np.timedelta64(1500, "ms"), "1.5", "1.5"),
    (np.timedelta64(5, "ns"), "0.000000005", "0.000000005"),
    (np.timedelta64(3, "M"), "3 months", "3 months"),
    (np.array([[1, 2], [3, 4]]), "[[1,2],[3,4]]", [[1, 2], [3, 4]]),
    (pd.NaT, None, None),
    (pd.NA, None, None),
    (np.datetime64("NaT", "s"), None, None),
    (np.timedelta64("NaT", "s"), None, None),
]


@pytest.mark.parametrize(("value", "text", "inside"), TABLE, ids=[type(row[0]).__name__ for row in TABLE])
def test_a_value_has_one_text(value: Any, text: Any, inside: Any) -> None:
    """A value has its documented text in a log, and the same text or JSON value inside JSON."""
    made = text_of(value, "k")
    assert (made.decode() if isinstance(made, bytes) else made) == text
    contents = contents_of(log_group.encode_log({"k": value}, NOW))[0]
    assert contents == ([] if text is None else [(b"k", text.encode())])
    expected = json.loads(text) if inside is ... else inside
    assert json.loads(str(text_of([value], "k"))) == [expected]


@native
@pytest.mark.parametrize("value", [row[0] for row in TABLE], ids=[type(row[0]).__name__ for row in TABLE])
def test_the_twins_agree_on_every_value(value: Any) -> None:
    """Native and pure implementations agree on every value, among plain fields, and with nanoseconds."""
    both({"a": "x", "k": value, "z": [value, {"d": value}]}, NOW, 5)


@native
@settings(deadline=None, max_examples=60)
@given(
    some.dictionaries(
        some.sampled_from(["a", "b", "", "日", 5, None, b"x", "\ud800"]),
        some.recursive(
            some.sampled_from([row[0] for row in TABLE] + [object, range(3), math.nan, "\udfff", b"\xff"]),
            lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=2), inner, max_size=3),
            max_leaves=5,
        ),
        max_size=4,
    ),
    some.sampled_from([None, Fallback(str), Fallback(None, lenient=True), Fallback(list, lenient=True)]),
)
def test_the_twins_agree_with_every_fallback(log: Any, fallback: Fallback | None) -> None:
    """They agree with every fallback, in bytes or error, and a lenient one refuses nothing."""
    made = both(log, NOW, 7, fallback)
    if fallback is not None and fallback.lenient:
        assert isinstance(made, bytes)
    both(LogItem(log, 5), NOW, 7, fallback)


def test_a_set_is_the_same_text_whatever_order_it_has() -> None:
    """Equal sets have the same text, even with members of several types."""
    assert text_of({"b", 1, None, "a", 2.5}, "k") == text_of({2.5, "a", None, 1, "b"}, "k")


def test_an_exception_has_its_type_message_and_traceback_with_that_of_its_cause() -> None:
    """An exception has its type, message and traceback, with that of its cause."""
    try:
        try:
            raise KeyError("cause")
        except KeyError as error:
            raise InvalidArgumentError("no good") from error
    except InvalidArgumentError as error:
        said = json.loads(str(text_of(error, "k")))
    assert said["type"] == "producer.model.errors.InvalidArgumentError"
    assert said["message"] == "no good"
    assert "test_values.py" in said["traceback"]
    assert "KeyError: 'cause'" in said["traceback"]
    assert json.loads(str(text_of(ValueError("x"), "k")))["type"] == "ValueError"


def test_a_key_in_json_may_be_a_date_an_enum_or_an_address_but_not_a_structure() -> None:
    """A key in JSON may be a date, an Enum or an address, but not a structure."""
    made = text_of({UTC_TIME.date(): 1, Colour.RED: math.nan, UUID(int=1): {2}, 5: None}, "k")
    assert json.loads(str(made)) == {"2026-01-02": 1, "red": "nan", str(UUID(int=1)): [2], "5": None}
    with pytest.raises(InvalidArgumentError, match=r"a name must be text, got .1, 2."):
        text_of({(1, 2): 3}, "k")


class Odd:
    def __repr__(self) -> str:
        return "<odd \udfff>"


class Broken:
    def __repr__(self) -> str:
        raise ZeroDivisionError


def sent(log: Any, **options: Any) -> dict[str, str]:
    """Return the fields of a log after all ways of ``send``, and check that they agree."""
    sink = RecordingSink()
    with Producer(sink=sink, config=ProducerConfig(**options)) as producer:
        producer.send("p", "l", log)
        stream = producer.stream("p", "l")
        stream.send_many([log])
        stream.send(log)
        stream.send(log)
        stream.send([log])
    records = [contents_of(record)[0] for record in sink.records()]
    assert len(records) == 5
    assert all(record == records[0] for record in records)
    return {name.decode(): value.decode() for name, value in records[0]}


def test_default_converts_values_of_other_types_in_a_log_and_inside_json_repeatedly_if_needed() -> None:
    """``default`` converts values of other types, in a log and inside JSON, repeatedly if needed."""

    def default(value: Any) -> Any:
        if isinstance(value, Odd):
            return {"odd": Broken()}
        if isinstance(value, Broken):
            return None
        raise TypeError(f"not that: {type(value).__name__}")

    assert sent({"a": Odd(), "b": [Odd()], "c": Broken(), "d": Colour.RED}, default=default) == {
        "a": '{"odd":null}',
        "b": '[{"odd":null}]',
        "d": "red",
    }
    with pytest.raises(InvalidArgumentError, match=r"field 'r'.*type range.*TypeError: not that: range"):
        sent({"r": range(3)}, default=default)
    with pytest.raises(InvalidArgumentError, match=r"returns no value that can be sent"):
        sent({"r": Odd()}, default=lambda value: value)
    with pytest.raises(InvalidArgumentError, match="cannot become JSON"):
        sent({"r": [Odd()]}, default=lambda value: value)


@pytest.mark.parametrize("name", ["\udfff", 5, None, b"n"])
def test_with_repr_names_and_values_that_cannot_be_sent_are_sent_as_their_repr(name: Any) -> None:
    """With ``repr``, names and values that cannot be sent are sent as their repr; the others are unchanged."""
    loop: list[Any] = []
    loop.append(loop)
    made = sent(
        {"ok": 1, name: "named", "odd": Odd(), "broken": Broken(), "half": "a\udfff", "loop": loop, "na": pd.NA},
        on_unencodable="repr",
    )
    named = name.encode("utf-8", "backslashreplace").decode() if isinstance(name, str) else repr(name)
    assert made == {
        "ok": "1",
        named: "named",
        "odd": "<odd \\udfff>",
        "broken": "<Broken, whose repr raised ZeroDivisionError>",
        "half": "a\\udfff",
        "loop": "[[...]]",
    }
    with pytest.raises(InvalidArgumentError, match="a log must be a mapping"):
        sent("no log", on_unencodable="repr")


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise LookupError


class Lazy(Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        raise UnspeakableError

    def __len__(self) -> int:
        return 1


class Stranger:
    """A value like the proxy of a request, outside of one."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("outside of a request")


class Choosy(type):
    def __getattr__(cls, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Chosen(metaclass=Choosy):
    """A class whose attributes raise."""


HOSTILE = [Lazy(), Stranger(), Chosen(), {"in": Stranger()}, [Stranger(), math.nan], {"in": Lazy()}, {Stranger(): 1}]


@pytest.mark.parametrize("number", range(len(HOSTILE)))  # pytest would access attributes of such values.
def test_a_value_whose_own_code_raises_is_refused_with_its_field_with_repr_it_is_sent(number: int) -> None:
    """A value whose own code raises is refused with its field; with repr it is sent."""
    value = HOSTILE[number]
    with pytest.raises(InvalidArgumentError, match="field 'bad'"):
        sent({"bad": value})
    with (
        pytest.raises(InvalidArgumentError, match="log 1 of send_many: field 'bad'") as caught,
        Producer(sink=RecordingSink()) as producer,
    ):
        producer.stream("p", "l").send_many([{}, {"bad": value}])
    assert caught.value.accepted_logs == 0
    made = sent({"good": 1, "bad": value}, on_unencodable="repr")
    assert made["good"] == "1"
    assert set(made) == {"good", "bad"}


def test_a_mapping_that_cannot_be_read_is_refused_one_that_can_be_read_once_is_sent_even_with_repr() -> None:
    """A mapping that cannot be read is refused; one that can be read once is sent, even with repr."""

    class Once(dict[str, Any]):
        def items(self) -> Any:
            return iter([("a", 1), ("b", Odd()), ("c", 2)])

    with pytest.raises(InvalidArgumentError, match="cannot be read: UnspeakableError"):
        sent(Lazy())
    with pytest.raises(InvalidArgumentError, match="a field's name must be text"):
        sent({Stranger(): 1})
    assert sent(Once(), on_unencodable="repr") == {"a": "1", "b": "<odd \\udfff>", "c": "2"}


def test_an_exception_whose_message_raises_is_sent_as_traceback_formats_it() -> None:
    """An exception whose message raises is sent as ``traceback`` formats it."""
    said = json.loads(str(text_of(UnspeakableError(), "k")))
    assert said["message"] == "<exception str() failed>"


def test_the_cache_of_types_is_bounded_even_if_a_program_makes_types_at_run_time() -> None:
    """The cache of types is bounded, even if a program makes types at run time."""
    from producer.wire import values

    for n in range(values._MOST_TYPES + 10):
        assert step_of(type(f"T{n}", (), {})) is None
    assert len(values._steps) <= values._MOST_TYPES


@pytest.mark.parametrize("send", [Producer.send, None], ids=["producer", "stream"])
def test_a_plain_log_has_the_nanoseconds_of_its_send(send: Callable[..., Any] | None) -> None:
    """A log has the nanoseconds of its sending; its own time, or a whole second, is kept."""
    from producer.testing import ManualClock
    from tests.support.log_group_schema import LogGroup

    clock, sink = ManualClock(start=NOW + 0.25), RecordingSink()
    with Producer(sink=sink, clock=clock) as producer:
        stream = producer.stream("p", "l")
        stream.send({"k": "first"})
        for log in ({"k": "v"}, LogItem({"k": "v"}), LogItem({"k": "v"}, 7), LogItem({"k": "v"}, None, 5)):
            stream.send(log) if send is None else producer.send("p", "l", log)
        clock.advance(0.75)
        stream.send({"k": "v"})
        producer.flush(10)
    group = LogGroup()
    group.ParseFromString(b"".join(sink.records()))
    quarter = 250_000_000
    assert [(log.Time, log.Time_ns) for log in group.Logs] == [
        (NOW, quarter), (NOW, quarter), (NOW, quarter), (7, 0), (NOW, 5), (NOW + 1, 0)
    ]  # fmt: skip
