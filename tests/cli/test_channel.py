"""``producer channel`` inspects, repairs and drains a channel's directory."""

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer import Producer, ProducerConfig
from producer.channels import Event, FileChannel, FileKeys
from producer.channels.file.recovery.inspection import look_at_events
from producer.channels.file.store.disk import Disk
from producer.cli import main
from producer.model.errors import AttemptError, RejectedError
from producer.model.interfaces import Delivery
from producer.server import LogHubServer
from producer.server.faults import Action, ApiRequest, Refuse, answer
from producer.testing import RecordingSink
from tests.channels.file.recovery.test_repair import OWED, torn
from tests.channels.helpers import drained
from tests.support.sim_fs import SimFS
from tests.support.waiting import eventually

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command, and returns the exit code and the output."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main(["channel", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Make a channel's directory with several segments, and 53 of 60 events left."""
    path = tmp_path / "logs"
    with FileChannel(path, segment_size=4096, minimum_free_space=0) as channel:
        for number in range(20):
            with channel.transaction() as transaction:
                transaction.put_many([Event({"n": str(number)}, b"body-%03d;" % number * 10) for _ in range(3)])
        with channel.transaction() as transaction:
            transaction.take(7)
    return path


def damage(directory: Path, body: bytes = b"body-010") -> Path:
    """Flip a byte of the first event with this body, and return its segment."""
    for segment in sorted(directory.glob("log-*")):
        content = bytearray(segment.read_bytes())
        if body in content:
            content[content.index(body) + 20] ^= 0xFF
            segment.write_bytes(content)
            return segment
    raise AssertionError("no such event")


def put_on_disk(disk: SimFS, directory: Path) -> None:
    """Copy a real directory of the channel to a simulated disk."""
    directory.mkdir()
    for name in disk.names("/channel"):
        (directory / name).write_bytes(disk.content(f"/channel/{name}"))


def key_file(path: Path) -> Path:
    path.write_text(json.dumps({"current": "k1", "keys": {"k1": "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="}}))
    return path


def content_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and path.name != "LOCK"}


def test_inspect_shows_events_bytes_age_segments_and_owner_also_as_json_and_changes_nothing(
    run: Run, directory: Path
) -> None:
    """`inspect` shows events, bytes, age, segments and owner, also as JSON, and changes nothing."""
    before = content_of(directory)
    code, out, _ = run("inspect", directory)
    assert code == 0
    assert "53, " in out
    assert "segments    3, " in out
    assert "which has ended" in out
    code, out, _ = run("inspect", directory, "--output", "json")
    report = json.loads(out)
    assert (code, report["events"], report["in_use"], report["lost_events"]) == (0, 53, False, 0)
    assert content_of(directory) == before


def test_inspect_says_which_records_are_in_an_emptied_channel(run: Run, directory: Path) -> None:
    """`inspect` names the record that lists waiting events, also in an emptied channel."""
    with FileChannel(directory, minimum_free_space=0) as channel, channel.transaction() as transaction:
        transaction.take(100)
        transaction.commit()
    _, out, _ = run("inspect", directory)
    assert "1 list of waiting events" in out


def test_inspect_works_beside_a_running_channel(run: Run, directory: Path) -> None:
    """`inspect` beside a running channel reports its owner, and does not disturb it."""
    with FileChannel(directory, minimum_free_space=0) as channel:
        code, out, _ = run("inspect", directory)
        assert (code, "running" in out) == (0, True)
        with channel.transaction() as transaction:
            assert len(transaction.take(100)) == 53


def test_verify_passes_a_sound_directory(run: Run, directory: Path) -> None:
    """`verify` exits with 0 and one line for a valid directory."""
    code, out, _ = run("verify", directory)
    assert (code, out) == (0, f"{directory}: every record is valid\n")


def test_verify_names_each_damaged_stretch(run: Run, directory: Path) -> None:
    """`verify` names the file, the offsets and the number of lost events, exits with 1, and changes nothing."""
    segment = damage(directory)
    before = content_of(directory)
    code, out, _ = run("verify", directory)
    assert code == 1
    assert f"damaged: {segment}: bytes " in out
    assert "lost: 1 event, by its sequence number" in out
    assert content_of(directory) == before


@pytest.mark.parametrize("size", [0, 1024, 2048])
@pytest.mark.parametrize("which", ["all", "last", "second"])
def test_verify_tells_of_segments_that_were_emptied(run: Run, directory: Path, which: str, size: int) -> None:
    """`verify` names segments that were truncated, and counts the events that the checkpoint lists in them.

    It does not claim that the log is used instead. After a repair nothing is damaged. Opening the channel also counts
    events that were lost with a header, and moves the file to quarantine.
    """
    segments = sorted(directory.glob("log-*"))
    cut = {"all": segments, "last": segments[-1:], "second": segments[1:2]}[which]
    for segment in cut:
        segment.write_bytes(segment.read_bytes()[:size])
    before = content_of(directory)
    code, out, _ = run("verify", directory)
    assert code == 1
    for segment in cut:
        assert f"damaged: {segment}" in out
    assert "the log is used instead" not in out
    # The last segment records that the first seven events were taken. Without its end, they are delivered again if
    # they still exist, and otherwise counted as lost.
    left = {event.sequence for event in look_at_events(str(directory))}
    told = re.search(r"lost: (\d+) events?, by (its|their) sequence number", out)
    assert told is not None
    assert len({*range(8, 61)} - left) <= int(told[1]) <= len({*range(1, 61)} - left)
    assert content_of(directory) == before
    shutil.copytree(directory, directory.with_name("copy"))
    assert run("repair", directory)[0] == 0
    assert run("verify", directory)[0] == 0
    with FileChannel(directory.with_name("copy"), minimum_free_space=0) as channel:
        kept = [path.name for path in directory.with_name("copy").glob("quarantine/*.unreadable")]
        assert sorted(kept) == [f"{segment.name}.unreadable" for segment in cut if not size]
        assert len(drained(channel)) == len(left)
        file = channel.stats().file
        assert file is not None
        if which == "second" or not size:  # otherwise the checkpoint would seem to be of another log
            assert file.lost_events == int(told[1])


def test_repair_takes_damage_out_and_keeps_it(run: Run, directory: Path) -> None:
    """After `repair` the directory verifies, all other events are there, and the original segment is in quarantine."""
    segment = damage(directory)
    as_it_was = segment.read_bytes()
    code, out, _ = run("repair", directory)
    assert f"repaired {segment}" in out
    assert (directory / "quarantine" / f"{segment.name}.copy").read_bytes() == as_it_was
    assert run("inspect", directory)[1].count("52, ") == 1
    with FileChannel(directory, minimum_free_space=0) as channel, channel.transaction() as transaction:
        bodies = [event.body[:8] for event in transaction.take(100)]
    assert len(bodies) == 52
    assert bodies.count(b"body-010") == 2
    assert (run("verify", directory)[0], code) == (0, 0)


def test_repair_of_a_record_s_commit_loses_nothing(run: Run, directory: Path) -> None:
    """`repair` of a Commit record loses no event of its transaction, with and without a checkpoint."""
    segment = next(path for path in sorted(directory.glob("log-*")) if b"body-010" in path.read_bytes())
    content = bytearray(segment.read_bytes())
    commit = content.rindex(b"body-010;") + len(b"body-010;")  # the Commit follows the third event
    content[commit + 20] ^= 0xFF
    segment.write_bytes(content)
    assert run("verify", directory)[0] == 1
    assert run("repair", directory)[0] == 0
    for name in ("checkpoint", "checkpoint.backup"):
        (directory / name).unlink()
    with FileChannel(directory, minimum_free_space=0) as channel:
        assert channel.stats().size == 53


def test_repair_restores_a_damaged_header(run: Run, directory: Path) -> None:
    """`repair` restores a damaged header from its second copy."""
    segment = sorted(directory.glob("log-*"))[0]
    content = bytearray(segment.read_bytes())
    content[20] ^= 0xFF
    segment.write_bytes(content)
    assert run("verify", directory)[0] == 1
    assert run("repair", directory)[0] == 0
    assert run("verify", directory)[0] == 0


def test_repair_without_disk_space_for_a_copy_changes_nothing_and_exits_with_1_with_space_it_succeeds(
    run: Run, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`repair` without disk space for a copy changes nothing and exits with 1; with space it succeeds."""
    segment = damage(directory)
    before = content_of(directory)
    create = Disk.create

    def full(self: Disk, path: str) -> int:
        if "/quarantine/" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return create(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "create", full)
        code, out, _ = run("repair", directory)
    assert segment.read_bytes() == before[segment.name]
    assert (code, "is unchanged" in out, "No space left on device" in out) == (1, True, True)
    assert "repaired" not in out.replace("could be repaired", "").replace("not repaired", "")
    assert run("repair", directory)[0] == 0


def test_repair_beside_an_older_copy_keeps_the_segment_as_it_is_now(run: Run, directory: Path) -> None:
    """`repair` keeps the current segment even if quarantine has an older copy of it."""
    segment = damage(directory)
    (directory / "quarantine").mkdir()
    for name in (segment.name, f"{segment.name}.copy"):
        (directory / "quarantine" / name).write_bytes(b"of an earlier damage")
    as_it_was = segment.read_bytes()
    assert run("repair", directory)[0] == 0
    kept = [path.read_bytes() for path in (directory / "quarantine").iterdir()]
    assert as_it_was in kept
    assert kept.count(b"of an earlier damage") == 2


@pytest.mark.parametrize("place", ["at the end", "in the middle"])
def test_repair_brings_no_half_of_a_torn_transaction_to_life(run: Run, tmp_path: Path, place: str) -> None:
    """`repair` never restores half of a torn transaction, also outside the last segment."""
    put_on_disk(torn(place), tmp_path / "logs")
    owed = [*OWED, "behind" * 200] if place == "in the middle" else OWED
    assert run("repair", tmp_path / "logs")[0] == 0
    for checkpoint in (True, False):
        for name in ("checkpoint", "checkpoint.backup"):
            if not checkpoint:
                (tmp_path / "logs" / name).unlink()
        with FileChannel(tmp_path / "logs", minimum_free_space=0) as channel:
            assert [event.body.decode() for event in channel.peek()] == owed


def test_repair_of_an_encrypted_directory_needs_its_keys(run: Run, tmp_path: Path) -> None:
    """`repair` of an encrypted directory without its key exits with 2, names the key, and changes nothing."""
    keys = key_file(tmp_path / "keys.json")
    with FileChannel(tmp_path / "logs", encryption=FileKeys(keys), minimum_free_space=0) as channel:
        for body in (b"one", b"two", b"three"):
            with channel.transaction() as transaction:
                transaction.put(Event({}, body))
    (segment,) = (tmp_path / "logs").glob("log-*")
    content = bytearray(segment.read_bytes())
    content[700] ^= 0xFF
    segment.write_bytes(content)
    before = content_of(tmp_path / "logs")
    code, _, errors = run("repair", tmp_path / "logs")
    assert (code, "--key-file" in errors) == (2, True)
    assert content_of(tmp_path / "logs") == before
    assert run("verify", tmp_path / "logs")[0] == 2
    assert run("verify", tmp_path / "logs", "--key-file", keys)[0] == 1
    assert run("repair", tmp_path / "logs", "--key-file", keys)[0] == 0
    assert run("verify", tmp_path / "logs", "--key-file", keys)[0] == 0


def test_repair_abandons_missing_segments_only_with_its_option(run: Run, directory: Path) -> None:
    """`repair` abandons missing segments only with its option, so that a forgotten data directory loses nothing."""
    gone = sorted(directory.glob("log-*"))[1]
    gone.rename(directory.parent / gone.name)
    before = content_of(directory)
    code, _, errors = run("repair", directory)
    assert (code, f"segments {int(gone.name[4:])}" in errors, "--give-up-missing" in errors) == (2, True, True)
    assert content_of(directory) == before
    code, out, _ = run("repair", directory, "--give-up-missing")
    assert (code, "abandoned the missing segments" in out, "lost: " in out) == (0, True, True)
    assert (directory / "quarantine" / "checkpoint.copy").read_bytes() == before["checkpoint"]
    assert run("verify", directory)[0] == 0


def test_repair_refuses_a_directory_in_use(run: Run, directory: Path) -> None:
    """`repair` refuses a directory in use, and names its owner."""
    with FileChannel(directory, minimum_free_space=0):
        code, _, errors = run("repair", directory)
    assert code == 2
    assert "is in use by the channel" in errors


@pytest.mark.parametrize("action", ["inspect", "verify", "repair"])
def test_a_directory_that_is_missing_empty_or_not_a_channel_exits_with_2_names_the_path(
    run: Run, tmp_path: Path, action: str
) -> None:
    """A directory that is missing, empty or not a channel exits with 2, names the path, and is not changed."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    for path, said in (("missing", "does not exist"), ("file", "not a directory"), ("empty", "empty"), (".", "files")):
        code, _, errors = run(action, tmp_path / path)
        assert (code, said in errors) == (2, True), errors
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "file"]


@pytest.mark.parametrize("action", ["inspect", "verify", "repair", "drain"])
def test_the_base_of_several_processes_is_not_one_of_their_directories(
    run: Run, tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base of several processes exits with 2, and nothing is created there."""
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", "secret")
    path = tmp_path / "base" / "host-1"
    with FileChannel(path, minimum_free_space=0) as channel, channel.transaction() as transaction:
        transaction.put(Event({}, b"x"))
    before = sorted(tmp_path.rglob("*"))
    arguments = ("--endpoint", "http://127.0.0.1:1") if action == "drain" else ()
    code, _, errors = run(action, tmp_path / "base", *arguments)
    assert (code, "name one of them: host-1" in errors) == (2, True)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_that_is_named_twice_by_a_link_or_as_its_own_data_directory_is_read_once(
    run: Run, directory: Path
) -> None:
    """A directory that is named twice, by a link or as its own data directory, is read once."""
    (directory.parent / "link").symlink_to(directory)
    same = ("--data-directory", directory.parent / "link", "--data-directory", f"{directory}/.")
    code, out, _ = run("inspect", directory, *same)
    assert (code, "events      53," in out) == (0, True)
    assert run("repair", directory, *same)[0] == 0


def test_encrypted_directory_without_its_keys_is_still_counted(run: Run, tmp_path: Path) -> None:
    """`inspect` of an encrypted directory counts records without its keys, and prints no key."""
    keys = key_file(tmp_path / "keys.json")
    key = json.loads(keys.read_text())["keys"]["k1"]
    with FileChannel(tmp_path / "logs", encryption=FileKeys(keys), minimum_free_space=0) as channel:
        with channel.transaction() as transaction:
            transaction.put_many([Event({}, b"secret")] * 3)
        with channel.transaction() as transaction:
            transaction.take(1)
    code, out, _ = run("inspect", tmp_path / "logs")
    assert (code, "unknown: a key is missing" in out, "3 puts" in out) == (0, True, True)
    code, out, errors = run("inspect", tmp_path / "logs", "--key-file", keys)
    assert (code, "events      2," in out) == (0, True)
    assert key not in out + errors


class _Refusing(RecordingSink):
    def write(self, delivery: Delivery) -> object:  # type: ignore[override]
        if delivery.key.logstore == "bad":
            error: AttemptError = RejectedError("ParameterInvalid", "no")
            raise error
        return super().write(delivery)


def leave(directory: Path, count: int, **options: Any) -> None:
    """Make a directory with ``count`` records that a producer could not deliver."""
    sink = RecordingSink()
    sink.write = _unreachable  # type: ignore[method-assign]
    config = ProducerConfig(linger_ms=100, drain_timeout_ms=0)
    producer = Producer(sink=sink, config=config, channel=FileChannel(directory, minimum_free_space=0, **options))
    for number in range(count):
        producer.send("my-project", "app-log", {"n": str(number)})
    producer.close(0.2)


def _unreachable(_: Delivery) -> object:
    from producer.model.errors import UnreachableError

    raise UnreachableError("RequestError", "connection refused")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[LogHubServer], None]:
    def put(server: LogHubServer) -> None:
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", server.access_key_secret)

    return put


def test_drain_delivers_every_record_and_empties_the_directory(
    run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]
) -> None:
    """`drain` delivers every record, and empties the directory."""
    leave(tmp_path / "logs", 20)
    with LogHubServer() as server:
        keys(server)
        code, out, errors = run("drain", tmp_path / "logs", "--endpoint", server.endpoint)
        assert (code, errors) == (0, "")
        assert "20 events delivered, 0 refused permanently, 0 damaged, 0 left" in out
        assert server.count("my-project", "app-log") == 20
    assert "events      0," in run("inspect", tmp_path / "logs")[1]


def test_drain_stores_rejected_records_as_dead_letters_with_the_reason_and_can_drain_these_later(
    run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]
) -> None:
    """`drain` stores rejected records as dead letters with the reason, and can drain these later."""
    leave(tmp_path / "logs", 3)
    with LogHubServer() as server:
        keys(server)
        server.faults.add(answer(400, "ParameterInvalid"), operation="PutLogs")
        code, out, _ = run("drain", tmp_path / "logs", "--endpoint", server.endpoint)
        assert (code, "3 refused permanently" in out) == (1, True)
        server.faults.clear()
        code, out, _ = run("drain", tmp_path / "logs.dead-letter", "--endpoint", server.endpoint)
        assert (code, "3 events delivered" in out) == (0, True)
        assert server.count("my-project", "app-log") == 3


def test_drain_never_touches_dead_letters_of_earlier_runs(
    run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]
) -> None:
    """`drain` without rejected records leaves earlier dead letters alone, and creates nothing."""
    letters = tmp_path / "logs.dead-letter"
    leave(tmp_path / "logs", 3)
    with LogHubServer() as server:
        keys(server)
        server.faults.add(answer(400, "ParameterInvalid"), operation="PutLogs")
        assert run("drain", tmp_path / "logs", "--endpoint", server.endpoint)[0] == 1
        server.faults.clear()
        before = content_of(letters)
        leave(tmp_path / "logs", 2)
        code, out, _ = run("drain", tmp_path / "logs", "--endpoint", server.endpoint)
        assert (code, "2 events delivered, 0 refused permanently, 0 damaged, 0 left" in out) == (0, True)
        assert content_of(letters) == before
    with FileChannel(letters, minimum_free_space=0) as refused:
        assert refused.stats().size == 3


def test_drain_makes_no_directory_where_nothing_is_refused(
    run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]
) -> None:
    """`drain` without rejected records creates no directory, and needs none."""
    leave(tmp_path / "logs", 2)
    (tmp_path / "logs.dead-letter").write_text("mine")
    with LogHubServer() as server:
        keys(server)
        assert run("drain", tmp_path / "logs", "--endpoint", server.endpoint)[0] == 0
        assert (tmp_path / "logs.dead-letter").read_text() == "mine"
        leave(tmp_path / "logs", 2)
        server.faults.add(answer(400, "ParameterInvalid"), operation="PutLogs")
        code, out, _ = run("drain", tmp_path / "logs", "--endpoint", server.endpoint, "--timeout", "5")
        assert (code, "0 events delivered, 0 refused permanently, 0 damaged, 2 left" in out) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "logs.dead-letter"]


def test_drain_counts_and_reports_records_that_are_rejected_while_it_closes(
    run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]
) -> None:
    """`drain` counts and reports records that are rejected while it closes."""
    leave(tmp_path / "logs", 3)
    with LogHubServer() as server:
        keys(server)
        answered = threading.Event()

        def late(_: ApiRequest) -> Action:
            assert answered.wait(60)
            return Refuse(status=400, code="ParameterInvalid")

        server.faults.add(late, operation="PutLogs")
        close = Producer.close

        def closing(self: Producer, timeout: float | None = None) -> None:
            answered.set()
            close(self, timeout)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Producer, "close", closing)
            code, out, _ = run("drain", tmp_path / "logs", "--endpoint", server.endpoint, "--timeout", "0.5")
    assert (code, "0 events delivered, 3 refused permanently, 0 damaged, 0 left" in out) == (1, True), out
    with FileChannel(tmp_path / "logs.dead-letter", minimum_free_space=0) as refused:
        assert refused.stats().size == 3


def test_drain_tells_of_damage(run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]) -> None:
    """`drain` reports damaged events as lost with their number, exits with 1, and names the quarantine."""
    leave(tmp_path / "logs", 20)
    segment = next(path for path in sorted((tmp_path / "logs").glob("log-*")) if b"app-log" in path.read_bytes())
    content = bytearray(segment.read_bytes())
    content[content.index(b"app-log") + 1] ^= 0xFF
    segment.write_bytes(content)
    with LogHubServer() as server:
        keys(server)
        code, out, _ = run("drain", tmp_path / "logs", "--endpoint", server.endpoint)
        assert (code, "19 events delivered, 0 refused permanently, 1 damaged, 0 left" in out) == (1, True), out
        assert server.count("my-project", "app-log") == 19
    assert list((tmp_path / "logs" / "quarantine").iterdir())


def test_drain_keeps_the_dead_letters_of_an_encrypted_channel_encrypted(
    run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]
) -> None:
    """`drain` encrypts dead letters with the keys of the channel."""
    key = key_file(tmp_path / "keys.json")
    leave(tmp_path / "logs", 3, encryption=FileKeys(key))
    with LogHubServer() as server:
        keys(server)
        server.faults.add(answer(400, "ParameterInvalid"), operation="PutLogs")
        arguments = ("--endpoint", server.endpoint, "--key-file", key)
        assert run("drain", tmp_path / "logs", *arguments)[0] == 1
        for path in (tmp_path / "logs.dead-letter").glob("log-*"):
            assert b"app-log" not in path.read_bytes()
        server.faults.clear()
        code, out, _ = run("drain", tmp_path / "logs.dead-letter", *arguments)
        assert (code, "3 events delivered" in out) == (0, True)


def test_drain_checks_the_channel_the_dead_letters_directory_and_the_timeout(
    run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`drain` checks the channel, the dead letters' directory and the timeout before it delivers anything."""
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", "secret")
    leave(tmp_path / "logs", 1)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    before = sorted(tmp_path.rglob("*"))
    logs, nobody = tmp_path / "logs", ("--endpoint", "http://127.0.0.1:1")
    for arguments, said in (
        ((tmp_path / "missing",), "producer channel drain: channel missing: "),
        ((tmp_path / "missing",), "does not exist"),
        ((logs, "--data-directory", tmp_path / "missing"), "does not exist"),
        ((logs, "--dead-letter", logs), "must differ from the drained directory"),
        ((logs, "--dead-letter", tmp_path / "link"), "must differ from the drained directory"),
        ((logs, "--dead-letter", tmp_path / "photos"), "not a channel's"),
    ):
        code, out, errors = run("drain", *arguments, *nobody)
        assert (code, said in errors, out) == (2, True, ""), (arguments, errors)
    for seconds in ("nan", "-1", "inf"):
        with pytest.raises(SystemExit) as caught:
            run("drain", logs, *nobody, f"--timeout={seconds}")
        assert caught.value.code == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interrupted_drain_exits_with_130_prints_the_outcome_so_far(tmp_path: Path) -> None:
    """An interrupted `drain` exits with 130, prints the outcome so far, and keeps the rest in the channel."""
    leave(tmp_path / "logs", 5)
    with LogHubServer() as server:
        installed = server.faults.add(answer(503, "ServerBusy"), operation="PutLogs")
        environment = {
            **os.environ,
            "LOGHUB_ACCESS_KEY_ID": server.access_key_id,
            "LOGHUB_ACCESS_KEY_SECRET": server.access_key_secret,
        }
        command = [sys.executable, "-m", "producer", "channel", "drain", str(tmp_path / "logs")]
        with subprocess.Popen(
            [*command, "--endpoint", server.endpoint],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("5 events to deliver")
            eventually(lambda: installed.fired)
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "0 events delivered, 0 refused permanently, 0 damaged, 5 left" in out
    assert "undelivered events are still in the channel" in errors
    with FileChannel(tmp_path / "logs", minimum_free_space=0) as channel:
        assert channel.stats().size == 5


def test_drain_against_an_absent_server_keeps_every_event_when_its_time_is_over(
    run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]
) -> None:
    """`drain` against an absent server keeps every event when its time is over."""
    leave(tmp_path / "logs", 5)
    with LogHubServer() as server:
        keys(server)
        endpoint = server.endpoint
    code, out, _ = run("drain", tmp_path / "logs", "--endpoint", endpoint, "--timeout", "0.3")
    assert (code, "5 left in the channel" in out) == (1, True)
    assert "events      5," in run("inspect", tmp_path / "logs")[1]


@pytest.mark.timeout(60)
def test_drain_ends_in_time_also_where_a_server_takes_everything_and_says_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`drain` cuts off requests without an answer at its timeout, and names directories that it did not start."""
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", "b")
    monkeypatch.setattr("producer.cli.drain._GRACE_SECONDS", 0.1)
    for number in range(2):
        leave(tmp_path / "base" / f"here-1-0000000{number}", 5)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        code, out, errors = run("drain", "--all", tmp_path / "base", "--endpoint", endpoint, "--timeout", "0.3")
    assert code == 1
    assert "0 events delivered, 0 refused permanently, 0 damaged, 5 left in the channel" in out
    assert "here-1-00000001 was not drained: the time limit (--timeout) has passed" in errors


def test_drain_without_credentials_says_what_to_set_before_it_tries_anything(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`drain` without credentials says what to set, before it tries anything."""
    monkeypatch.delenv("LOGHUB_ACCESS_KEY_ID", raising=False)
    leave(tmp_path / "logs", 1)
    code, _, errors = run("drain", tmp_path / "logs", "--endpoint", "http://127.0.0.1:1")
    assert (code, "LOGHUB_ACCESS_KEY_ID" in errors) == (2, True)


def _key_with_a_typo(server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", server.access_key_id + "x")


def _secret_with_a_typo(server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", server.access_key_secret + "x")


def _no_such_logstore(server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults.add(answer(404, "LogStoreNotExist"))


def _another_kind_of_server(server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults.add(answer(404, "", body=b"<html>not here</html>"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (_key_with_a_typo, ("InvalidAccessKeyId", "check LOGHUB_ACCESS_KEY_ID")),
        (_secret_with_a_typo, ("SignatureNotMatch", "LOGHUB_ACCESS_KEY_SECRET")),
        (_no_such_logstore, ("LogStoreNotExist", "create the logstore")),
        (_another_kind_of_server, ("BadResponse", "check --endpoint")),
    ],
)
def test_drain_asks_before_it_takes_anything(
    run: Run,
    tmp_path: Path,
    keys: Callable[[LogHubServer], None],
    monkeypatch: pytest.MonkeyPatch,
    wrong: Callable[[LogHubServer, pytest.MonkeyPatch], None],
    said: tuple[str, ...],
) -> None:
    """`drain` with a wrong access key takes no event, exits with 2, and explains the error."""
    leave(tmp_path / "logs", 3)
    with LogHubServer() as server:
        keys(server)
        secret = server.access_key_secret
        wrong(server, monkeypatch)
        code, _, errors = run("drain", tmp_path / "logs", "--endpoint", server.endpoint)
    assert (code, "nothing was taken from the channel: my-project/app-log: " in errors) == (2, True), errors
    assert all(words in errors for words in said), errors
    assert secret not in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs"]
    with FileChannel(tmp_path / "logs", minimum_free_space=0) as channel:
        assert channel.stats().size == 3


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "InvalidAccessKeyId"), (403, "Forbidden"), (404, "ProjectNotExist"), (401, "Unauthorized")],
)
def test_drain_stops_at_a_refusal_of_the_key_the_project_or_the_permission_keeps_the_rest(
    run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None], status: int, code: str
) -> None:
    """`drain` stops at a refusal of the key, the project or the permission, keeps the rest, and exits with 1."""
    leave(tmp_path / "logs", 3)
    with LogHubServer() as server:
        keys(server)
        server.faults.add(answer(status, code), operation="PutLogs")
        exit_code, out, errors = run("drain", tmp_path / "logs", "--endpoint", server.endpoint)
        assert (exit_code, "0 events delivered, 0 refused permanently, 0 damaged, 3 left" in out) == (1, True), out
        assert f"stopped: my-project/app-log: status {status}, {code}" in errors
        assert "still in the channel" in errors
        server.faults.clear()
        assert run("drain", tmp_path / "logs", "--endpoint", server.endpoint)[0] == 0
        assert server.count("my-project", "app-log") == 3
    assert not (tmp_path / "logs.dead-letter").exists()


def test_a_key_that_may_only_write_drains(run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]) -> None:
    """`drain` works with a key that may write, but not query."""
    leave(tmp_path / "logs", 3)
    with LogHubServer() as server:
        keys(server)
        server.faults.add(answer(401, "Unauthorized"), operation="ListShards")
        code, _, errors = run("drain", tmp_path / "logs", "--endpoint", server.endpoint)
        assert (code, errors, server.count("my-project", "app-log")) == (0, "", 3)
