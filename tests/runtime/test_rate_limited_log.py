from __future__ import annotations

import logging
from pathlib import Path

import pytest

from producer.agent.events.batch import EventBatch
from producer.agent.events.counters import Counters
from producer.agent.flow.health import Health
from producer.agent.flow.outlet import SourceOutlet
from producer.agent.run.supervisor import Supervised
from producer.agent.selectors.replicating import ReplicatingSelector
from producer.runtime.clock import Deadline, Stop
from producer.runtime.rate_limited_log import RateLimitedLog
from producer.testing import ManualClock

from ..agent.doubles import context, ledger_of, memory_channel, taken
from ..support.waiting import eventually


def test_the_same_error_has_a_line_every_ten_seconds() -> None:
    """The same error is logged every ten seconds with its count, whatever numbers it contains."""
    clock = ManualClock()
    log = RateLimitedLog(clock)
    assert log.due_error(OSError("waited 3.1 s")) == ""
    assert log.due_error(OSError("waited 4 s")) is None
    assert log.due_error(ValueError("waited 4 s")) == ""
    assert log.due_error(OSError("gone")) == ""
    clock.advance(9.9)
    assert log.due_error(OSError("waited 5.5 s")) is None
    clock.advance(0.1)
    assert log.due_error(OSError("waited 6 s")) == " (2 times more since the last line about it)"
    clock.advance(10)
    assert log.due_error(OSError("waited 7 s")) == ""
    clock.advance(1)
    assert log.due_error(OSError("waited 8 s")) is None
    clock.advance(9)
    assert log.due_error(OSError("waited 9 s")) == " (1 time more since the last line about it)"


def test_ids_and_signatures_make_no_other_error() -> None:
    """Ids and signatures do not make an error a different one."""
    log = RateLimitedLog(ManualClock())
    told = "SignatureNotMatch: the signature {} is not that of the request (request {})"
    assert log.due_error(OSError(told.format("q0Yb+kT/8Ge1VvX2=", "19DD8796AE0D44FFAF98BE54"))) == ""
    assert log.due_error(OSError(told.format("h1mXz+Q/ab3dEfGh=", "D1FBA291B4EE4F5B8C58681E"))) is None
    assert log.due_error(OSError("ProjectNotExist: no such project (request 7C14BAC4F4E54F5785AE01A3)")) == ""


def test_a_source_that_waits_for_a_full_channel_logs_that_every_ten_seconds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A source that waits for a full channel logs that every ten seconds."""
    health = Health(clock := ManualClock())
    channel = memory_channel(tmp_path, capacity=1, keep_alive=0)
    channel.put(EventBatch.of_lines(b"full\n"))
    selector = ReplicatingSelector(ReplicatingSelector.Options(), context(tmp_path), {"c": channel})
    outlet = SourceOutlet("r1", [], selector, {"c": channel}, ledger_of("r1", {"c": channel}, selector), health)

    class FourTimes(Stop):
        """A stop at the fifth try."""

        def wait(self, seconds: float | None = None) -> bool:
            return health.counters.get("ChannelWriteFail") >= 5

    with caplog.at_level(logging.WARNING):
        assert not outlet.put_until(EventBatch.of_lines(b"waits\n"), FourTimes())
        assert len(caplog.records) == 1
        clock.advance(10)
        assert not outlet.put_until(EventBatch.of_lines(b"waits\n"), FourTimes())
    assert ["(4 times more since" in record.getMessage() for record in caplog.records] == [False, True]
    channel.close()


def test_the_end_of_a_logged_error_is_logged_once() -> None:
    """The end of a logged error is logged once, and that of an unlogged one is not."""
    log = RateLimitedLog(ManualClock())
    assert not log.recovered()
    log.due_error(OSError("gone"))
    assert log.recovered()
    assert not log.recovered()
    assert log.due_error(OSError("gone")) is None
    assert not log.recovered()


def test_a_source_that_continues_after_a_full_channel_logs_it_except_for_an_optional_channel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A source that continues after a full channel logs it, except for an optional channel."""
    clock, stop = ManualClock(), Stop()
    channel, optional = (memory_channel(tmp_path / name, capacity=1, keep_alive=0) for name in "ab")
    optional.put(EventBatch.of_lines(b"full\n"))
    channels = {"c": channel, "o": optional}
    selector = ReplicatingSelector(ReplicatingSelector.Options(optional=("o",)), context(tmp_path), channels)
    outlet = SourceOutlet("r1", [], selector, channels, ledger_of("r1", channels, selector), Health(clock))
    with caplog.at_level(logging.INFO):
        outlet.put(EventBatch.of_lines(b"1\n"), 0)
        assert not outlet.put_until(EventBatch.of_lines(b"2\n"), _Ended())
        assert [taken(channel)] == [[b"1"]]
        assert outlet.put_until(EventBatch.of_lines(b"2\n"), stop)
        assert [taken(channel)] == [[b"2"]]
        assert outlet.put_until(EventBatch.of_lines(b"3\n"), stop)
    told = [record.getMessage() for record in caplog.records if "optional" not in record.getMessage()]
    assert [text.startswith("source r1 waits") for text in told] == [True, False]
    assert told[1] == "source r1 continues"
    channel.close()
    optional.close()


class _Ended(Stop):
    """A stop after one try."""

    def wait(self, seconds: float | None = None) -> bool:
        return True


def test_a_component_that_keeps_failing_is_logged_every_ten_seconds_and_each_failure_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A component that keeps failing is logged every ten seconds, and each failure is counted."""
    clock, counters = ManualClock(), Counters()

    def fail(_stop: Stop) -> None:
        raise RuntimeError("the test's component fails")

    supervised = Supervised("source", "r1", fail, counters, clock)
    with caplog.at_level(logging.WARNING):
        supervised.start()
        for pause in (1, 2, 4, 8):
            before = counters.get("RestartCount")
            eventually(lambda pause=pause, before=before: _failed_again(clock, counters, pause, before))
        supervised.stop()
        assert supervised.join(Deadline.after(clock, None))
    assert counters.get("RestartCount") >= 5
    assert 1 <= len(caplog.records) < counters.get("RestartCount")
    assert caplog.records[0].exc_info is not None


def _failed_again(clock: ManualClock, counters: Counters, pause: float, before: int) -> bool:
    if counters.get("RestartCount") == before:
        clock.advance(pause / 20)
    return counters.get("RestartCount") > before
