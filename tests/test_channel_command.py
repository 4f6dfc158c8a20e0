"""``producer channel``: looks into a directory, mends it, and delivers what is in it."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from producer import Producer, ProducerConfig
from producer.channels import Event, FileChannel, FileKeys
from producer.channels.file.disk import Disk
from producer.cli import main
from producer.errors import AttemptError, RejectedError
from producer.interfaces import Delivery
from producer.server import LogHubServer
from producer.server.faults import answer
from producer.testing import RecordingSink
from tests.channels.file.test_repair import OWED, torn
from tests.support.sim_fs import SimFS

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command: its exit code, and what it printed."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main(["channel", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A channel's directory of several segments, with 53 of 60 events left."""
    path = tmp_path / "logs"
    with FileChannel(path, segment_size=4096, minimum_free_space=0) as channel:
        for number in range(20):
            with channel.transaction() as transaction:
                transaction.put_many([Event({"n": str(number)}, b"body-%03d;" % number * 10) for _ in range(3)])
        with channel.transaction() as transaction:
            transaction.take(7)
    return path


def damage(directory: Path, body: bytes = b"body-010") -> Path:
    """Flip a byte of the first event with this body; the segment."""
    for segment in sorted(directory.glob("log-*")):
        content = bytearray(segment.read_bytes())
        if body in content:
            content[content.index(body) + 20] ^= 0xFF
            segment.write_bytes(content)
            return segment
    raise AssertionError("no such event")


def put_on_disk(disk: SimFS, directory: Path) -> None:
    """Make a real directory of the channel on a simulated disk."""
    directory.mkdir()
    for name in disk.names("/channel"):
        (directory / name).write_bytes(disk.content(f"/channel/{name}"))


def key_file(path: Path) -> Path:
    path.write_text(json.dumps({"current": "k1", "keys": {"k1": "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="}}))
    return path


def content_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and path.name != "LOCK"}


def test_inspect_tells_what_is_there_and_changes_nothing(run: Run, directory: Path) -> None:
    """Events, bytes, age, segments, owner; for programs as JSON."""
    before = content_of(directory)
    code, out, _ = run("inspect", directory)
    assert code == 0
    assert "53, " in out
    assert "segments    3, " in out
    assert "which has ended" in out
    code, out, _ = run("inspect", directory, "--json")
    report = json.loads(out)
    assert (code, report["events"], report["in_use"], report["lost_events"]) == (0, 53, False, 0)
    assert content_of(directory) == before


def test_inspect_works_beside_a_running_channel(run: Run, directory: Path) -> None:
    """It says that somebody has the directory, and disturbs nobody."""
    with FileChannel(directory, minimum_free_space=0) as channel:
        code, out, _ = run("inspect", directory)
        assert (code, "running" in out) == (0, True)
        with channel.transaction() as transaction:
            assert len(transaction.take(100)) == 53


def test_verify_passes_a_sound_directory(run: Run, directory: Path) -> None:
    """Exit code 0, and a line that says so."""
    code, out, _ = run("verify", directory)
    assert (code, out) == (0, f"{directory}: every record checks out\n")


def test_verify_names_each_damaged_stretch(run: Run, directory: Path) -> None:
    """Exit code 1, the file, the offsets, and how many events are lost; nothing is changed."""
    segment = damage(directory)
    before = content_of(directory)
    code, out, _ = run("verify", directory)
    assert code == 1
    assert f"damaged: {segment}: bytes " in out
    assert "lost: 1 events" in out
    assert content_of(directory) == before


def test_repair_takes_damage_out_and_keeps_it(run: Run, directory: Path) -> None:
    """Afterwards the directory verifies, all other events are there, and the segment as it was is in quarantine."""
    segment = damage(directory)
    as_it_was = segment.read_bytes()
    code, out, _ = run("repair", directory)
    assert f"mended {segment}" in out
    assert (directory / "quarantine" / f"{segment.name}.copy").read_bytes() == as_it_was
    assert run("inspect", directory)[1].count("52, ") == 1
    with FileChannel(directory, minimum_free_space=0) as channel, channel.transaction() as transaction:
        bodies = [event.body[:8] for event in transaction.take(100)]
    assert len(bodies) == 52
    assert bodies.count(b"body-010") == 2
    assert (run("verify", directory)[0], code) == (0, 0)


def test_repair_of_a_record_s_commit_loses_nothing(run: Run, directory: Path) -> None:
    """A transaction whose Commit is taken out still counts, with a checkpoint and without."""
    segment = next(path for path in sorted(directory.glob("log-*")) if b"body-010" in path.read_bytes())
    content = bytearray(segment.read_bytes())
    commit = content.rindex(b"body-010;") + len(b"body-010;")  # it follows the third event
    content[commit + 20] ^= 0xFF
    segment.write_bytes(content)
    assert run("verify", directory)[0] == 1
    assert run("repair", directory)[0] == 0
    for name in ("checkpoint", "checkpoint.backup"):
        (directory / name).unlink()
    with FileChannel(directory, minimum_free_space=0) as channel:
        assert channel.stats().size == 53


def test_repair_restores_a_damaged_header(run: Run, directory: Path) -> None:
    """Of two copies one is enough; afterwards there are two again."""
    segment = sorted(directory.glob("log-*"))[0]
    content = bytearray(segment.read_bytes())
    content[20] ^= 0xFF
    segment.write_bytes(content)
    assert run("verify", directory)[0] == 1
    assert run("repair", directory)[0] == 0
    assert run("verify", directory)[0] == 0


def test_repair_without_room_for_a_copy_changes_nothing_and_says_so(
    run: Run, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1; the segment is as it was, and once there is room it is mended."""
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
    assert (code, "nothing in it was changed" in out, "No space left on device" in out) == (1, True, True)
    assert "mended" not in out.replace("could be mended", "").replace("not mended", "")
    assert run("repair", directory)[0] == 0


def test_repair_beside_an_older_copy_keeps_the_segment_as_it_is_now(run: Run, directory: Path) -> None:
    """What was kept at an earlier damage is no copy of what is overwritten now."""
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
    """Also where it does not stand in the last segment: only what was committed is there, with a checkpoint or not."""
    put_on_disk(torn(place), tmp_path / "logs")
    assert run("repair", tmp_path / "logs")[0] == 0
    for checkpoint in (True, False):
        for name in ("checkpoint", "checkpoint.backup"):
            if not checkpoint:
                (tmp_path / "logs" / name).unlink()
        with FileChannel(tmp_path / "logs", minimum_free_space=0) as channel:
            assert [event.body.decode() for event in channel.peek()] == OWED


def test_repair_of_an_encrypted_directory_needs_its_keys(run: Run, tmp_path: Path) -> None:
    """Without them nobody can tell what is torn: exit code 2, the key's name, and nothing is changed."""
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


def test_repair_gives_missing_segments_up_only_when_told_to(run: Run, directory: Path) -> None:
    """Whoever forgot a data directory, or to mount it, loses nothing by a repair."""
    gone = sorted(directory.glob("log-*"))[1]
    gone.rename(directory.parent / gone.name)
    before = content_of(directory)
    code, _, errors = run("repair", directory)
    assert (code, f"segments {int(gone.name[4:])}" in errors, "--give-up-missing" in errors) == (2, True, True)
    assert content_of(directory) == before
    code, out, _ = run("repair", directory, "--give-up-missing")
    assert (code, "gave up the missing segments" in out, "lost: " in out) == (0, True, True)
    assert (directory / "quarantine" / "checkpoint.copy").read_bytes() == before["checkpoint"]
    assert run("verify", directory)[0] == 0


def test_repair_refuses_a_directory_in_use(run: Run, directory: Path) -> None:
    """It says who has it."""
    with FileChannel(directory, minimum_free_space=0):
        code, _, errors = run("repair", directory)
    assert code == 2
    assert "belongs to the channel" in errors


@pytest.mark.parametrize("action", ["inspect", "verify", "repair"])
def test_what_is_no_channel_s_directory_is_an_error_for_people(run: Run, tmp_path: Path, action: str) -> None:
    """A missing one, an empty one, one of other files: exit code 2, the path, and nothing is made or changed."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    for path, said in (("missing", "not a directory"), ("file", "not a directory"), ("empty", "empty"), (".", "files")):
        code, _, errors = run(action, tmp_path / path)
        assert (code, said in errors) == (2, True), errors
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "file"]


def test_encrypted_directory_without_its_keys_is_still_counted(run: Run, tmp_path: Path) -> None:
    """Records are counted; which events are left needs the key file, and no key is printed."""
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
    """Refuses what goes to one logstore."""

    def write(self, delivery: Delivery) -> object:  # type: ignore[override]
        if delivery.key.logstore == "bad":
            error: AttemptError = RejectedError("ParameterInvalid", "no")
            raise error
        return super().write(delivery)


def leave(directory: Path, count: int) -> None:
    """A directory with ``count`` records that a producer could not deliver."""
    sink = RecordingSink()
    sink.write = _unreachable  # type: ignore[method-assign]
    config = ProducerConfig(linger_ms=100, drain_timeout_ms=0)
    producer = Producer(sink=sink, config=config, channel=FileChannel(directory, minimum_free_space=0))
    for number in range(count):
        producer.send("my-project", "app-log", {"n": str(number)})
    producer.close(0.2)


def _unreachable(_: Delivery) -> object:
    from producer.errors import UnreachableError

    raise UnreachableError("RequestError", "connection refused")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[LogHubServer], None]:
    def put(server: LogHubServer) -> None:
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", server.access_key_secret)

    return put


def test_drain_delivers_what_a_producer_left(run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]) -> None:
    """Every record arrives, and the directory is empty then."""
    leave(tmp_path / "logs", 20)
    with LogHubServer() as server:
        keys(server)
        code, out, errors = run("drain", tmp_path / "logs", "--endpoint", server.endpoint)
        assert (code, errors) == (0, "")
        assert "20 events delivered, 0 refused for good, 0 left" in out
        assert server.count("my-project", "app-log") == 20
    assert "events      0," in run("inspect", tmp_path / "logs")[1]


def test_drain_keeps_what_the_server_refuses(run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]) -> None:
    """It goes to the dead letters with the reason, from where it can be drained once the reason is gone."""
    leave(tmp_path / "logs", 3)
    with LogHubServer() as server:
        keys(server)
        server.faults.add(answer(400, "ParameterInvalid"))
        code, out, _ = run("drain", tmp_path / "logs", "--endpoint", server.endpoint)
        assert (code, "3 refused for good" in out) == (1, True)
        server.faults.clear()
        code, out, _ = run("drain", tmp_path / "logs.dead-letter", "--endpoint", server.endpoint)
        assert (code, "3 events delivered" in out) == (0, True)
        assert server.count("my-project", "app-log") == 3


def test_drain_leaves_what_it_cannot_deliver_in_time(
    run: Run, tmp_path: Path, keys: Callable[[LogHubServer], None]
) -> None:
    """Nothing is lost by a drain against a server that is down."""
    leave(tmp_path / "logs", 5)
    with LogHubServer() as server:
        keys(server)
        endpoint = server.endpoint
    code, out, _ = run("drain", tmp_path / "logs", "--endpoint", endpoint, "--timeout", "0.3")
    assert (code, "5 left in the channel" in out) == (1, True)
    assert "events      5," in run("inspect", tmp_path / "logs")[1]


def test_drain_without_credentials_says_what_to_set(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is tried."""
    monkeypatch.delenv("LOGHUB_ACCESS_KEY_ID", raising=False)
    leave(tmp_path / "logs", 1)
    code, _, errors = run("drain", tmp_path / "logs", "--endpoint", "http://127.0.0.1:1")
    assert (code, "LOGHUB_ACCESS_KEY_ID" in errors) == (2, True)
