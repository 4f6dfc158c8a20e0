"""Idempotent streams with a channel, whose process dies at any moment: each record is stored once, in order."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from producer import BodyTooLargeError, NetworkError, RejectedError, ServerError
from producer.channels import ProcessFileChannel
from producer.channels.file.store.notes import FileNotes
from producer.durable import send_journal as intents_module
from producer.durable.pipeline import DurablePipeline
from producer.durable.send_journal import Intent, note_name
from producer.model.errors import ChannelIOError
from producer.model.interfaces import Delivery, Receipt
from producer.model.records import StreamKey
from producer.pipeline.batching import accumulator as accumulator_module
from producer.pipeline.batching.unconfirmed import REFUSALS_BEFORE_SPLIT
from tests.durable.kit import KeptChannel, by_hand, crashed, drive, file_channel, values
from tests.support.clocks import JumpingClock
from tests.support.pipelines import KEY, config, record
from tests.support.sequenced import Server

IDEMPOTENT = KEY._replace(order="idempotent")
OTHER = IDEMPOTENT._replace(topic="other")
PLAIN = KEY._replace(topic="plain")
DOWN = NetworkError("RequestError", "refused")


def lost() -> NetworkError:
    """Return the error of a lost response."""
    return NetworkError("RequestError", "no answer", may_have_been_stored=True)


class Life:
    """A channel, and the process that owns it at a time."""

    def __init__(self, directory: Path, sink: Server, **options: Any) -> None:
        self.directory, self.sink = directory, sink
        self.options = {"batch_count_threshold": 3} | options
        self._numbers = itertools.count()
        self.channel = file_channel(self._next(), fsync="os")
        self.pipeline = self._begin()

    def _next(self) -> Path:
        return self.directory / f"life-{next(self._numbers)}"

    def _begin(self) -> DurablePipeline:
        return by_hand(self.sink, self.channel, **self.options)

    def die(self, **options: Any) -> None:
        """Simulate SIGKILL; the next process has the data on the disk, and opens it with these options."""
        self.channel = crashed(self.channel, self._next(), **options)
        self.pipeline = self._begin()

    def send(self, *texts: str, key: StreamKey = IDEMPOTENT) -> None:
        """Store these records."""
        for text in texts:
            self.pipeline.admission.accept(key, record(text), 1, None)

    def deliver(self) -> None:
        """Do all work, lingering batches and retries included."""
        for _ in range(1000):
            drive(self.pipeline)
            if not self.pipeline.stored:
                return
            self.pipeline.pipeline.accumulator.seal_open()
            self.pipeline.clock.advance(1)  # type: ignore[attr-defined]
        raise AssertionError(f"{self.pipeline.stored} events are left")

    def settle(self) -> int:
        """Do all work of streams that may stop; return the number of events that stay in the channel."""
        for _ in range(1000):
            drive(self.pipeline)
            if not self.pipeline.pipeline.accumulator.incomplete() and not self.pipeline.feeder.run_once(0):
                break
            self.pipeline.pipeline.accumulator.seal_open()
            self.pipeline.clock.advance(1)  # type: ignore[attr-defined]
        return self.pipeline.stored

    def deliver_until_stopped(self) -> None:
        """Do all work until the stream of these tests stops."""
        for _ in range(100):
            drive(self.pipeline)
            self.pipeline.clock.advance(10)  # type: ignore[attr-defined]
            self.pipeline.pipeline.mover.run_once()
        assert self.pipeline.stopped(IDEMPOTENT) is not None

    def feed(self) -> None:
        """Take the events of the channel, and send nothing."""
        while self.pipeline.feeder.run_once(0):
            pass

    def attempt(self) -> None:
        """Make one attempt, without an acknowledgement to the channel."""
        assert self.pipeline.pipeline.io_pool.run_next()


def test_a_death_between_the_answer_and_the_commit_stores_nothing_twice(tmp_path: Path) -> None:
    """The batch in flight is sent again under its number, unchanged, and is refused."""
    life = Life(tmp_path, Server())
    life.send("0", "1")
    life.feed()
    life.pipeline.pipeline.accumulator.seal_open()
    life.attempt()
    assert values(life.sink) == ["0", "1"]
    life.send("2", "3")
    life.die()
    life.deliver()
    assert values(life.sink) == ["0", "1", "2", "3"]
    assert life.sink.numbers() == [1, 2]
    assert len(life.sink.last) == 1


def test_a_death_before_the_request_arrived_loses_nothing(tmp_path: Path) -> None:
    """The batch is sent again under its number, and stored."""
    life = Life(tmp_path, Server(DOWN))
    life.send("0", "1", "2")
    life.feed()
    life.attempt()
    assert values(life.sink) == []
    life.die()
    life.deliver()
    assert values(life.sink) == ["0", "1", "2"]
    assert [attempt.sequence for attempt in life.sink.attempts][:1] * 2 == [
        attempt.sequence for attempt in life.sink.attempts
    ]


def test_of_several_delivered_but_unacknowledged_batches_only_the_last_ones_number_is_sent_again(
    tmp_path: Path,
) -> None:
    """Of several delivered but unacknowledged batches, only the last one's number is sent again."""
    life = Life(tmp_path, Server())
    life.send(*"012345678")
    life.feed()
    for _ in range(3):
        life.attempt()
    life.die()
    attempts = len(life.sink.attempts)
    life.deliver()
    assert values(life.sink) == list("012345678")
    assert len(life.sink.attempts) == attempts + 1


def test_a_batch_in_flight_that_was_not_stored_is_sent_unchanged(tmp_path: Path) -> None:
    """A batch in flight that was not stored is sent unchanged, without the delivered events before it."""
    life = Life(tmp_path, Server(None, None, DOWN))
    life.send(*"012345678")
    life.feed()
    for _ in range(3):
        life.attempt()
    assert values(life.sink) == list("012345")
    life.die()
    life.deliver()
    assert values(life.sink) == list("012345678")


def test_events_of_other_streams_between_them_change_nothing(tmp_path: Path) -> None:
    """The batch in flight is rebuilt although other events lie between its own, and is complete when they are
    passed.
    """
    life = Life(tmp_path, Server())
    life.send("a")
    life.send("0", key=OTHER)
    life.send("b")
    life.send("x", key=PLAIN)
    life.feed()
    life.pipeline.pipeline.accumulator.seal_open()
    for _ in range(3):
        life.attempt()
    life.send("c", "d")
    life.send("1", key=OTHER)
    life.die()
    life.deliver()
    assert values(life.sink, "topic") == ["a", "b", "c", "d"]
    assert values(life.sink, "other") == ["0", "1"]
    assert Counter(values(life.sink, "plain")) == {"x": 2}, "an ordinary stream repeats: the test could not tell"


def test_a_batch_that_lingers_is_not_cut_by_a_flush_while_it_is_formed(tmp_path: Path) -> None:
    """Linger, thresholds and flush do not seal the batch before its last event."""
    life = Life(tmp_path, Server(), batch_count_threshold=3)
    life.send("0", "1", "2")
    life.feed()
    life.attempt()
    life.die()
    life.options["batch_count_threshold"] = 1
    life.pipeline = by_hand(life.sink, life.channel, **life.options)
    life.pipeline.feeder._block = 1
    life.pipeline.feeder.run_once(0)
    life.pipeline.pipeline.accumulator.seal_open()
    life.pipeline.pipeline.mover.run_once()
    assert not life.pipeline.pipeline.io_pool.run_next()
    life.deliver()
    assert values(life.sink) == ["0", "1", "2"]


def test_a_batch_in_flight_is_formed_whole_though_a_transaction_holds_less(tmp_path: Path) -> None:
    """A full transaction does not mean that the channel has no more events of the batch."""
    life = Life(tmp_path, Server())
    life.send("0", "1", "2")
    life.feed()
    life.attempt()
    life.die(transaction_capacity=2)
    life.deliver()
    assert values(life.sink) == ["0", "1", "2"]
    assert life.sink.numbers() == [1]


def test_if_the_first_half_was_stored_when_the_process_died_only_the_second_one_is_sent(tmp_path: Path) -> None:
    """If the first half was stored when the process died, only the second one is sent."""
    life = Life(tmp_path, Server(BodyTooLargeError("PostBodyTooLarge", "x")), batch_count_threshold=4)
    life.send("0", "1", "2", "3")
    life.feed()
    life.attempt()
    life.attempt()
    assert values(life.sink) == ["0", "1"]
    life.die()
    life.deliver()
    assert values(life.sink) == ["0", "1", "2", "3"]
    assert life.sink.numbers() == [1, 2]


def _cut_in_doubt(tmp_path: Path, *answers: Any) -> Life:
    """Return a life whose batch of four lost its response, then was too large until it was split; ``answers``
    follow.
    """
    too_large = [BodyTooLargeError("PostBodyTooLarge", "x")] * REFUSALS_BEFORE_SPLIT
    life = Life(tmp_path, Server(lost(), *too_large, *answers), batch_count_threshold=4)
    life.send("0", "1", "2", "3")
    life.feed()
    for _ in range(1 + REFUSALS_BEFORE_SPLIT):
        life.attempt()
        life.pipeline.clock.advance(10)  # type: ignore[attr-defined]
        life.pipeline.pipeline.mover.run_once()
    return life


def _forget_the_whole(life: Life) -> None:
    """Make the server forget the unconfirmed request."""
    life.sink.deliveries.clear()
    life.sink.last.clear()


def test_the_batch_was_stored_but_unconfirmed_no_half_of_it_is_sent_under_a_new_number(tmp_path: Path) -> None:
    """The batch was stored, but unconfirmed: no half of it is sent under a new number."""
    life = Life(tmp_path, Server(), batch_count_threshold=4)
    life.send("0", "1", "2", "3")
    life.feed()
    life.attempt()
    life.die()
    life.sink.script = [BodyTooLargeError("PostBodyTooLarge", "x")]
    life.deliver()
    assert values(life.sink) == ["0", "1", "2", "3"]
    assert life.sink.numbers() == [1]


def test_a_death_after_a_batch_in_doubt_was_cut_forgets_neither_it_nor_its_parts(tmp_path: Path) -> None:
    """The first part was never sent: after the restart the whole is, and nothing is stored twice or lost."""
    for stored in (False, True):
        life = _cut_in_doubt(tmp_path / str(stored), DOWN)
        if not stored:
            _forget_the_whole(life)
        life.attempt()  # the first part, not connected; its number is noted
        life.die()
        if not stored:
            life.deliver()
            assert values(life.sink) == ["0", "1", "2", "3"]
            continue
        for _ in range(5):  # for all that the next process can know, it was the part or the whole
            drive(life.pipeline)
            life.pipeline.clock.advance(1)  # type: ignore[attr-defined]
        assert life.pipeline.stopped(IDEMPOTENT) is not None
        assert life.pipeline.stored == 4


def test_a_death_between_the_parts_of_a_batch_in_doubt_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """The first part was stored, which confirms the number: the next process sends the other part, under its own
    number.
    """
    life = _cut_in_doubt(tmp_path)
    _forget_the_whole(life)
    life.attempt()
    assert values(life.sink) == ["0", "1"]
    life.die()
    life.deliver()
    assert values(life.sink) == ["0", "1", "2", "3"]
    assert life.sink.numbers() == [1, 2]


def test_records_of_unknown_fate_stay_in_the_channel_until_resume(tmp_path: Path) -> None:
    """Records of unknown fate are neither lost nor sent again, even by the next process, until ``resume`` sends
    them.
    """
    life = _cut_in_doubt(tmp_path, lost())
    _forget_the_whole(life)
    life.deliver_until_stopped()
    assert values(life.sink) == ["0", "1"]
    assert life.pipeline.stored == 2
    life.die()
    life.deliver_until_stopped()
    assert values(life.sink) == ["0", "1"]
    assert life.pipeline.stored == 2
    life.pipeline.resume(IDEMPOTENT)
    life.deliver()
    assert values(life.sink) == ["0", "1", "2", "3"]


def test_a_list_of_an_idempotent_stream_in_a_channel_is_not_cut(tmp_path: Path) -> None:
    """A list is one event with one position, which could not say how much was sent: it fails with that reason."""
    life = Life(tmp_path, Server(BodyTooLargeError("PostBodyTooLarge", "x")))
    future = life.pipeline.admission.accept(IDEMPOTENT, record(logs=4), 4, None)
    drive(life.pipeline)
    assert "never split" in future.exception(0).result.error_message  # type: ignore[union-attr]


def test_a_batch_acknowledged_in_part_is_sent_again_in_part(tmp_path: Path) -> None:
    """If some events of the batch were acknowledged, the rest is sent under its number, and is refused."""
    life = Life(tmp_path, Server())
    life.send("0", "1", "2")
    life.feed()
    life.attempt()
    life.pipeline.feeder.takings[0].acknowledge([3])
    life.die()
    life.deliver()
    assert values(life.sink) == ["0", "1", "2"]


def test_a_stream_that_failed_is_delivered_in_order_after_the_restart(tmp_path: Path) -> None:
    """Records that waited behind the failure are sent by the next process, under the next number."""
    life = Life(tmp_path, Server(None, RejectedError("ParameterInvalid", "x")), batch_count_threshold=1)
    life.send("0", "1", "2", "3")
    drive(life.pipeline)
    assert life.pipeline.stopped(IDEMPOTENT) is not None
    life.die()
    life.deliver()
    assert values(life.sink) == ["0", "2", "3"]


def test_a_disk_that_refuses_the_note_delays_the_batch_which_is_sent_once_the_note_is_written(tmp_path: Path) -> None:
    """A disk that refuses the note delays the batch, which is sent once the note is written."""
    life = Life(tmp_path, Server())
    notes = life.channel.notes
    assert notes is not None
    write, refusals = notes.write, [True]

    def failing(*arguments: Any) -> None:
        if refusals[0]:
            raise ChannelIOError("c", "the disk is full")
        write(*arguments)

    notes.write = failing  # type: ignore[method-assign]
    life.send("0", "1", "2")
    drive(life.pipeline)
    assert not life.sink.attempts
    refusals[0] = False
    life.deliver()
    assert values(life.sink) == ["0", "1", "2"]


def test_a_note_about_lost_events_is_removed_and_a_new_key_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """New events would get the numbers of the lost ones: the note is removed, and a new key is used."""
    life = Life(tmp_path, Server())
    life.send("0", "1", "2")
    life.feed()
    life.attempt()
    directory = tmp_path / "older"
    shutil.copytree(life.channel.directory, directory, ignore=shutil.ignore_patterns("log-*", "checkpoint*"))
    life.channel = file_channel(directory)
    life.pipeline = by_hand(life.sink, life.channel, batch_count_threshold=3)
    assert "its newest events are lost (the machine crashed, or the disk is damaged)" in caplog.text
    assert "an agent's sources read their last input again" in caplog.text
    life.send("3", "4", "5")
    life.deliver()
    assert values(life.sink) == ["0", "1", "2", "3", "4", "5"]


def test_a_damaged_database_is_kept_aside_and_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The database is in quarantine/, the log says so, and records are delivered under new keys."""
    life = Life(tmp_path, Server())
    life.send("0", "1", "2")
    life.deliver()
    life.pipeline.give_back()
    for name in ("notes.db", "notes.db-wal"):
        path = Path(life.channel.directory, name)
        if path.exists():
            path.write_bytes(b"no database" * 1000)
    life.channel = file_channel(Path(life.channel.directory))
    life.pipeline = by_hand(life.sink, life.channel, batch_count_threshold=3)
    life.send("3", "4", "5")
    life.deliver()
    assert values(life.sink) == ["0", "1", "2", "3", "4", "5"]
    assert "cannot be read" in caplog.text
    assert list(Path(life.channel.directory, "quarantine").glob("notes.db.*"))


def test_notes_hold_hashes_and_numbers_only(tmp_path: Path) -> None:
    """Notes hold no name of a stream, and nothing of a record."""
    life = Life(tmp_path, Server())
    life.send("a-secret-value", key=IDEMPOTENT._replace(topic="a-secret-topic"))
    life.deliver()
    content = b"".join(path.read_bytes() for path in Path(life.channel.directory).glob("notes.db*"))
    assert content
    assert b"secret" not in content


def test_no_notes_are_made_for_other_streams(tmp_path: Path) -> None:
    """A channel without idempotent streams has no database."""
    life = Life(tmp_path, Server())
    life.send("0", key=PLAIN)
    life.send("0", key=KEY._replace(order="ordered"))
    life.deliver()
    assert not list(Path(life.channel.directory).glob("notes.db*"))


def test_notes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest unused notes are removed first; those of batches in flight stay."""
    monkeypatch.setattr(intents_module, "MAX_NOTES", 10)
    monkeypatch.setattr(intents_module, "_WRITES_PER_CHECK", 5)
    life = Life(tmp_path, Server(DOWN), batch_count_threshold=1)
    life.send("first", key=IDEMPOTENT._replace(topic="in flight"))
    life.feed()
    life.attempt()
    life.sink.script = []
    for n in range(40):
        life.send("x", key=IDEMPOTENT._replace(topic=str(n)))
        life.feed()
        life.attempt()
    notes = life.channel.notes
    assert notes is not None
    assert notes.read(note_name(IDEMPOTENT._replace(topic="in flight"))) is not None
    assert notes.read(note_name(IDEMPOTENT._replace(topic="39"))) is not None
    assert notes.read(note_name(IDEMPOTENT._replace(topic="0"))) is None
    kept = [notes.read(note_name(IDEMPOTENT._replace(topic=str(n)))) for n in range(40)]
    assert sum(one is not None for one in kept) <= 10 + 5


def test_a_batch_that_never_becomes_complete_is_let_go_under_a_new_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a minute an incomplete batch is sent under a new key: perhaps twice, never lost."""
    life = Life(tmp_path, Server(DOWN))
    life.send("0", "1", "2")
    life.feed()
    life.attempt()
    life.die()
    life.pipeline.feeder._block = 1
    life.pipeline.feeder.run_once(0)
    assert isinstance(life.pipeline.clock, JumpingClock)
    life.pipeline.clock.advance(accumulator_module._FORMING_SECONDS + 1)
    life.pipeline.pipeline.mover.run_once()
    assert "cannot rebuild a batch" in caplog.text
    life.deliver()
    assert values(life.sink) == ["0", "1", "2"]


def test_the_batch_waits_neither_for_later_events_nor_until_the_channel_is_empty(tmp_path: Path) -> None:
    """The batch waits neither for later events nor until the channel is empty."""
    life = Life(tmp_path, Server(DOWN))
    life.send("0", "1")
    life.feed()
    life.pipeline.pipeline.accumulator.seal_open()
    life.attempt()
    life.send("x", key=PLAIN)
    life.die()
    life.pipeline.feeder._block = 1
    life.pipeline.feeder.run_once(0)
    assert not life.pipeline.pipeline.io_pool.run_next()
    life.pipeline.feeder.run_once(0)
    life.attempt()
    assert values(life.sink) == ["0", "1"]
    life.deliver()


def test_an_event_passed_over_for_a_bug_is_not_taken_for_one_of_the_batch_around_it(tmp_path: Path) -> None:
    """The stream's note is removed: after a restart the event is not taken for one of the batch around it."""
    life = Life(tmp_path, Server())
    feed, calls = life.pipeline.feeder._feed, list[int]()

    def broken_once(*arguments: Any) -> object:
        calls.append(1)
        return 1 / 0 if len(calls) == 2 else feed(*arguments)

    life.pipeline.feeder._feed = broken_once
    life.send("0", "1", "2")
    assert life.settle() == 1
    assert values(life.sink) == ["0", "2"]
    life.die()
    life.deliver()
    assert values(life.sink) == ["0", "2", "1"]


def test_the_example_of_the_format_is_correct_and_an_invalid_note_is_refused() -> None:
    """The example of the format is correct, and an invalid note is refused."""
    intent = Intent.from_bytes(bytes.fromhex("ab" * 16 + "00" * 7 + "07" + "00" * 7 + "08" + "00" * 7 + "09"))
    assert (intent.sequence.key, intent.sequence.number, intent.first, intent.last) == ("ab" * 16, 7, 8, 9)
    assert Intent.from_bytes(intent.to_bytes()) == intent
    assert not intent.cut
    cut = dataclasses.replace(intent, cut=True)
    assert cut.to_bytes() == intent.to_bytes() + b"\x01"
    assert Intent.from_bytes(cut.to_bytes()) == cut
    with pytest.raises(ValueError, match="a note of 5 bytes is invalid"):
        Intent.from_bytes(b"short")


def test_notes_take_no_second_owner(tmp_path: Path) -> None:
    """The open database is locked, besides the channel's own lock."""
    notes = FileNotes(str(tmp_path), "c")
    notes.write("a", b"v", 1)
    with (
        closing(sqlite3.connect(tmp_path / "notes.db", timeout=0)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("SELECT * FROM notes")
    notes.close()


class _Forgetful(Server):
    """A server that may lose a request, which its sender cannot know."""

    def write(self, delivery: Delivery) -> Receipt:
        if self.script and self.script[0] is DROPPED:
            self.attempts.append(delivery)
            self.script.pop(0)
            raise lost()
        return super().write(delivery)


DROPPED = NetworkError("RequestError", "no answer", may_have_been_stored=True)


def _script(dice: random.Random) -> Iterator[Any]:
    """Yield faults; a batch that is too large often stays so, otherwise an unconfirmed one would never be split."""
    too_large = BodyTooLargeError("PostBodyTooLarge", "x")
    while True:
        kind = dice.choice(["fine", "fine", "lost", "dropped", "down", "busy", "too large"])
        if kind == "too large":
            yield from [too_large] * dice.choice([1, REFUSALS_BEFORE_SPLIT, REFUSALS_BEFORE_SPLIT + 1])
        elif kind == "busy":
            yield ServerError("ServerBusy", "x", may_have_been_stored=True)
        else:
            yield {"fine": None, "lost": lost(), "dropped": DROPPED, "down": DOWN}[kind]


@pytest.mark.parametrize("seed", range(int(os.environ.get("HISTORIES", "8"))))
def test_whatever_happens_each_record_is_stored_once_and_in_order(tmp_path: Path, seed: int) -> None:
    """With random sends, faults, steps of single stages, and deaths, each record is stored once and in order.

    Records of unknown fate stay in the channel.
    """
    dice = random.Random(seed)
    sink = _Forgetful(*itertools.islice(_script(dice), 300))
    life = Life(tmp_path, sink, batch_count_threshold=4, base_retry_backoff_ms=1)
    sent: Counter[str] = Counter()
    deaths = 0

    def send() -> None:
        topic = dice.choice("ab")
        key = IDEMPOTENT._replace(topic=topic)
        for _ in range(dice.randint(1, 6)):
            if life.pipeline.stopped(key) is None:
                life.send(str(sent[topic]), key=key)
                sent[topic] += 1

    def pass_time() -> None:
        life.pipeline.clock.advance(dice.choice([0.01, 1.0]))  # type: ignore[attr-defined]
        life.pipeline.pipeline.mover.run_once()

    def try_one() -> None:
        life.pipeline.pipeline.io_pool.run_next()

    def acknowledge() -> None:
        life.pipeline.acks.run_once()

    steps: list[Callable[[], object]] = [
        send,
        pass_time,
        lambda: life.pipeline.feeder.run_once(0),
        try_one,
        try_one,
        acknowledge,
        lambda: drive(life.pipeline),
    ]
    for _ in range(150):
        if dice.random() < 0.06:
            life.die(transaction_capacity=dice.choice([1, 2, 5, 10_000]))
            deaths += 1
        dice.choice(steps)()
    kept = life.settle()
    assert deaths
    for topic in "ab":
        found, whole = values(sink, topic), [str(n) for n in range(sent[topic])]
        stopped = life.pipeline.stopped(IDEMPOTENT._replace(topic=topic)) is not None
        assert found == whole[: len(found)]
        assert found == whole or (stopped and kept)


# -- adoption


def _orphan(life: Life, base: Path) -> None:
    """Make the directory of a process that died, below ``base``."""
    shutil.copytree(life.channel.directory, base / "orphan")


def _adopting(tmp_path: Path) -> Any:
    options = {"segment_size": 4096, "minimum_free_space": 0, "reserve": 4096, "checkpoint_interval": None}
    channel = ProcessFileChannel(tmp_path / "base", adopt_interval=None, **options)  # type: ignore[arg-type]
    assert channel.own.directory  # opened before there is an orphan to adopt
    assert channel._adopter is not None
    channel._adopter._thread.join()  # its one scan is over
    return channel


def test_an_adopted_batch_in_flight_keeps_its_number(tmp_path: Path) -> None:
    """Another process adopts the channel: a delivered batch is not stored again, the rest is sent, in order."""
    life = Life(tmp_path, Server())
    life.send("0", "1", "2", "3", "4", "5")
    life.feed()
    life.attempt()
    life.attempt()
    life.send("6")
    channel = _adopting(tmp_path)
    pipeline = by_hand(life.sink, channel, batch_count_threshold=2)
    pipeline.admission.accept(IDEMPOTENT, record("own"), 1, None)
    _orphan(life, tmp_path / "base")
    assert channel._adopt() == 7
    life.pipeline = pipeline
    life.deliver()
    found = values(life.sink)
    assert [text for text in found if text != "own"] == list("0123456")
    assert found.count("own") == 1
    assert len(life.sink.last) == 2, "the adopted stream and the process's own have a key each"
    pipeline.give_back()


def test_a_process_that_opens_or_adopts_the_adopters_directory_after_its_death_knows_the_number(tmp_path: Path) -> None:
    """A process that opens or adopts the adopter's directory after its death knows the number as well."""
    life = Life(tmp_path, Server())
    life.send("0", "1", "2", "3")
    life.feed()
    life.attempt()
    channel = _adopting(tmp_path)
    _orphan(life, tmp_path / "base")
    assert channel._adopt() == 4
    shutil.copytree(channel.own.directory, tmp_path / "again")
    channel.close()
    other = _adopting(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "again", tmp_path / "elsewhere" / "base" / "orphan")
    assert other._adopt() == 4
    life.pipeline = by_hand(life.sink, other, batch_count_threshold=1)
    life.deliver()
    assert values(life.sink) == ["0", "1", "2", "3"]
    life.pipeline.give_back()


def test_a_dead_letter_of_an_adopted_stream_reads_as_of_an_ordinary_idempotent_one(tmp_path: Path) -> None:
    """The header names the order, not the former channel."""
    life = Life(tmp_path, Server())
    life.send("0", "1", "2")
    life.feed()
    life.attempt()
    life.send("3")
    channel, letters = _adopting(tmp_path), KeptChannel()
    _orphan(life, tmp_path / "base")
    channel._adopt()
    life.sink.script = [None, RejectedError("ParameterInvalid", "x")]
    life.pipeline = DurablePipeline(
        config(batch_count_threshold=3, linger_ms=100),
        life.sink,
        JumpingClock(),
        "test",
        channel,
        letters,
        threadless=True,
    )
    life.deliver()
    (letter,) = letters.events()
    assert letter.headers["order"] == "idempotent"
    assert "adopted" not in letter.headers
    life.pipeline.give_back()
