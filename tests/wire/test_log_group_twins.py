"""``encode_log`` and the ends of open batches: native and pure implementations have the same bytes, errors and
outcomes.
"""

import datetime
import gc
import signal
import sys
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from producer.model.errors import InvalidArgumentError
from producer.model.futures import SendFuture
from producer.model.records import LogItem
from producer.model.results import Result
from producer.testing import ManualClock
from producer.wire import log_group
from producer.wire.text import Fallback, moment_of
from tests.wire.twins import native

pytestmark = native
NOW = 1_700_000_000


class Text(str):
    """A subclass of ``str`` that hides it."""

    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        return b"wrong"


#: The time at which the ends of open batches are used.
LATE = moment_of(NOW + 0.9)


def outcome(encode: Any, log: Any, now: int = NOW, nanos: int = 0, fallback: Fallback | None = None) -> Any:
    try:
        return encode(log, now, nanos, fallback)
    except InvalidArgumentError as error:
        return type(error), str(error)


def both(log: Any, now: int = NOW, nanos: int = 0, fallback: Fallback | None = None) -> Any:
    from producer.wire import _log_group

    pure = outcome(log_group.encode_log, log, now, nanos, fallback)
    assert outcome(_log_group.encode_log, log, now, nanos, fallback) == pure
    return pure


_TEXTS = some.text(some.characters(), max_size=12) | some.sampled_from(
    [
        "x" * 127,
        "x" * 128,
        "é" * 63 + "x",
        "é" * 64,
        "€" * 43,
        "😀" * 32,
        "\x7f\x80\u07ff\u0800\uffff\U00010000",
        "\ud800",
    ]
)
_VALUES = (
    _TEXTS
    | some.none()
    | some.booleans()
    | some.integers()
    | some.sampled_from([0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**5000])
    | some.floats()
    | some.binary(max_size=9)
    | some.sampled_from(
        [
            Text("text"),
            bytearray(b"bytes"),
            memoryview(b"view"),
            Decimal("1E+3"),
            uuid.UUID(int=5),
            datetime.date(2026, 1, 31),
            {"a": [1, None, float("nan")]},
            ["x", "\ud800"],
            object,
            3j,
        ]
    )
)
_NAMES = _TEXTS | some.sampled_from(["level", "message"]) | some.just(Text("name")) | some.integers(0, 3)


@settings(max_examples=500, deadline=None)
@given(some.dictionaries(_NAMES, _VALUES, max_size=6), some.sampled_from([0, 127, 128, NOW, 2**32 - 1]))
def test_the_twins_agree_on_every_log(log: dict[Any, Any], now: int) -> None:
    """Native and pure implementations agree on any log, byte for byte, or in the error."""
    both(log, now)


_TIMES = some.none() | some.sampled_from([0, 127, 128, NOW, 2**32 - 1, 2**32, -1, 1.5, True, 10**30])
_NANOS = some.none() | some.sampled_from([0, 1, 255, 256, 999_999_999, 1_000_000_000, -1, True, 10**30])


@settings(max_examples=300, deadline=None)
@given(some.dictionaries(_NAMES, _VALUES, max_size=3), _TIMES, _NANOS)
def test_the_twins_agree_on_logs_with_times_of_their_own(log: dict[Any, Any], time: Any, nanos: Any) -> None:
    """Native and pure implementations agree on logs with their own valid or invalid times, also in an open batch."""
    item = LogItem(log, time, nanos)
    assert outcome(lambda one, *_: (end := opened()).add(one, None) and end._records[0], item) == both(item, *LATE)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 129, 16_383, 16_384, 2_097_151, 2_097_152])
def test_native_and_pure_agree_on_lengths_of_any_width(size: int) -> None:
    """Native and pure implementations agree on lengths of any width, of names, values, and all kinds of text."""
    for character in ("x", "é", "€", "😀"):
        both({"k": character * size})
        both({character * size: "v", "k": character * (size // 2)})


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
def test_any_number_of_fields(count: int) -> None:
    """Native and pure implementations agree on any number of fields, of plain values, long numbers, and others."""
    both({f"k{n}": f"{n}" for n in range(count)})
    both({f"k{n}": -2.2250738585072014e-308 for n in range(count)})
    both({f"k{n}": Decimal(n) for n in range(count)})


def test_native_and_pure_agree_on_other_mappings_and_objects_that_are_not_logs() -> None:
    """Native and pure implementations agree on other mappings, items with times, and objects that are not logs."""
    for log in (
        OrderedDict(a="b"),
        LogItem({"a": 1}, time=5, time_ns=6),
        LogItem([("a", 1), ("a", 2)]),
        5,
        "text",
        None,
    ):
        both(log)


class Meddler(uuid.UUID):
    """A value that changes its log while it is encoded."""

    def __init__(self, log: dict[str, Any]) -> None:
        super().__init__(int=5)
        object.__setattr__(self, "log", log)

    __slots__ = ("log",)

    def __str__(self) -> str:
        self.log.clear()  # type: ignore[attr-defined]
        self.log.update({f"other {n}": "x" * 100 for n in range(200)})  # type: ignore[attr-defined]
        gc.collect()
        return "meddled"


def test_a_value_that_changes_the_log_changes_the_next_one() -> None:
    """A log that a value changes is sent with its names and values at the time of sending."""
    from producer.wire import _log_group

    for encode in (log_group.encode_log, _log_group.encode_log):
        log: dict[str, Any] = {"a": "1" * 50, "z": "2" * 50}
        log["m"] = Meddler(log)
        assert encode(log, NOW) == log_group.encode_log({"a": "1" * 50, "z": "2" * 50, "m": "meddled"}, NOW)
        assert len(log) == 200


class Holder:
    result: Result | None = None

    def follow(self, _position: int) -> None:
        """Ignore the cut."""

    def keep_future(self, position: int, future: SendFuture) -> None:
        """Ignore the outcome."""


def opened() -> Any:
    from producer.pipeline.batching import _open_records

    memory, clock = _open_records.Bytes(2**60), ManualClock(NOW + 0.9)  # type: ignore[attr-defined]
    return _open_records.OpenRecords(Holder(), memory, clock, (10**9, 10**6), 100)  # type: ignore[arg-type]


@settings(deadline=None)
@given(some.lists(some.dictionaries(_NAMES, _VALUES, max_size=6), max_size=20))
def test_an_open_batch_holds_the_records_of_its_logs(logs: list[dict[Any, Any]]) -> None:
    """An open batch has the records of all logs that can be sent, with the errors of the pure implementation for
    others.
    """
    records, expected = opened(), []
    for log in logs:
        pure = outcome(log_group.encode_log, log, *LATE)
        added = outcome(lambda log, *_: records.add(log, None), log)
        if isinstance(pure, bytes):
            assert added._position == len(expected)
            expected.append(pure)
        else:
            assert added == pure
    sealed = records.seal()
    assert b"".join(sealed.records) == b"".join(expected)
    assert (sealed.sends, sealed.logs, sealed.size) == (len(expected), len(expected), 100 + sum(map(len, expected)))


def test_the_native_future_passes_isinstance_and_has_all_attributes() -> None:
    """The native future passes ``isinstance`` and has all attributes; the garbage collector skips it until needed."""
    future = opened().add({"a": "b"}, None)
    assert isinstance(future, SendFuture)
    assert not gc.is_tracked(future)
    assert (future.done(), future.cancel(), future.running(), future.stored) == (False, False, False, False)
    assert repr(future) == "<SendFuture pending>"
    with pytest.raises(TimeoutError, match="not completed within 0 s"):
        future.result(0)
    with pytest.raises(AttributeError):
        future.nothing  # noqa: B018
    future.mark = [future]
    assert gc.is_tracked(future)
    assert [name for name in dir(SendFuture) if not name.startswith("__") and not hasattr(future, name)] == []


class InterruptError(BaseException):
    """Raised by the signal handler."""


class Interrupts:
    """Sends a signal a thousand times a second, whose handler raises once each time it is ``armed``."""

    armed = False

    def raise_once(self, _number: int, _frame: FrameType | None) -> None:
        if self.armed:
            self.armed = False
            raise InterruptError


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    interrupts = Interrupts()
    before = signal.signal(signal.SIGALRM, interrupts.raise_once)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    yield interrupts
    interrupts.armed = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_nothing_is_left_over_by_a_million_sends(interrupts: Interrupts) -> None:
    """A million sends, also failed and interrupted ones, leak no reference."""
    from producer.wire import _log_group

    good = {"level": "INFO", "text": "é" * 20, "n": 5, "f": 0.5, "b": b"x", "t": True, "none": None}
    mixed = {**good, "decimal": Decimal(5)}
    bad = ({"k": object()}, {"k": "\ud800"}, {5: "v"}, {"\ud800": "v"}, {"k": Decimal(1), "z": object()})

    def round_of(count: int) -> None:
        records = opened()
        for number in range(count):
            try:
                interrupts.armed = True
                records.add(good, None)
                records.add(mixed, print if number % 3 else None)
                _log_group.encode_log(mixed, NOW)
                records.add(bad[number % len(bad)], None)
            except (InvalidArgumentError, InterruptError):
                pass
        records.append(b"record", 2, print, 10)
        records.seal()
        records.add(good, None)

    def left() -> int:
        gc.collect()
        return sys.getallocatedblocks()

    gc.collect()  # Objects of other tests also refer to True, None and 5.
    counted = [sys.getrefcount(one) for one in (good, mixed, *good.values(), *bad)]
    with suppress(InterruptError):
        round_of(3000)
        interrupts.armed = False
    before = left()
    for _ in range(85):
        try:
            round_of(3000)
            interrupts.armed = False
        except InterruptError:  # Raised outside of the inner handler.
            interrupts.armed = False
    assert left() - before < 500
    references = [sys.getrefcount(one) for one in (good, mixed, *good.values(), *bad)]
    # True and None have other references.
    assert [one - two for one, two in zip(references, counted, strict=True) if abs(one - two) > 200] == []


@pytest.mark.parametrize("count", [63, 64, 65, 255, 256, 257, 1000])
def test_both_implementations_encode_a_log_of_many_fields_equally(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both implementations encode a log of many fields equally; up to 256 fields need no Python code."""
    from producer.wire import _log_group

    log: dict[str, Any] = {f"name {number}": number if number % 3 else "é" * number for number in range(count)}
    expected = log_group.encode_log(log, NOW)
    if count <= 256:
        monkeypatch.setattr(_log_group, "encode_in_python", None)
    assert _log_group.encode_log(log, NOW) == expected
