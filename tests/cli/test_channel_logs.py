"""``producer channel peek`` and ``export`` show a channel's logs; ``drain --all`` empties the channels of processes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from producer import Producer, ProducerConfig
from producer.agent.events.batch import EventBatch
from producer.agent.events.event_format import write_batch
from producer.channels import Event, FileChannel, FileKeys, ProcessFileChannel
from producer.channels.file.recovery.inspection import look_at_events
from producer.server import LogHubServer
from producer.server.faults import answer
from producer.testing import RecordingSink

from .test_channel import Run, content_of, damage, directory, key_file, leave, run

__all__ = ["directory", "run"]  # fixtures


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Callable[[LogHubServer], None]:
    def name(server: LogHubServer) -> None:
        monkeypatch.setenv("LOGHUB_ENDPOINT", server.endpoint)
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", server.access_key_secret)

    return name


def exported(run: Run, tmp_path: Path) -> list[dict[str, str]]:
    return rows(run("export", tmp_path / "logs")[1])


def rows(out: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in out.splitlines()]


def test_events_are_read_in_order_without_the_taken_ones_without_a_change(directory: Path) -> None:
    """Events are read in order, without the taken ones, without a change, and also beside a running channel."""
    before = content_of(directory)
    seen = list(look_at_events(str(directory)))
    assert content_of(directory) == before
    with FileChannel(directory, minimum_free_space=0) as channel:
        assert [(event.sequence, event.body) for event in seen] == [
            (event.sequence, bytes(event.body)) for event in channel.peek()
        ]
        assert len(list(look_at_events(str(directory)))) == 53


def test_a_damaged_event_is_missing_and_the_others_are_there(directory: Path) -> None:
    """A damaged event is left out, and the others are read."""
    damage(directory)
    bodies = [bytes(event.body)[:8] for event in look_at_events(str(directory))]
    assert bodies.count(b"body-010") < 3
    assert bodies.count(b"body-011") == 3


def test_peek_shows_the_first_logs_decoded(run: Run, tmp_path: Path) -> None:
    """`peek` shows the first logs with target, time and fields, up to the limit, and changes nothing."""
    leave(tmp_path / "logs", 15)
    before = content_of(tmp_path / "logs")
    code, out, _ = run("peek", tmp_path / "logs")
    assert (code, len(out.splitlines())) == (0, 10)
    code, out, _ = run("peek", tmp_path / "logs", "-n", "2")
    assert [log["n"] for log in rows(out)] == ["0", "1"]
    first = rows(out)[0]
    assert (first["__project__"], first["__logstore__"]) == ("my-project", "app-log")
    assert int(first["__time__"]) > 1_700_000_000
    table = run("peek", tmp_path / "logs", "-n", "1", "-o", "table")[1]
    assert "my-project" in table.splitlines()[1]
    assert content_of(tmp_path / "logs") == before


def test_export_has_every_log(run: Run, tmp_path: Path) -> None:
    """`export` prints every log with topic, source and tags."""
    sink = RecordingSink()
    config = ProducerConfig(log_tags={"env": "test"}, drain_timeout_ms=0, linger_ms=5000)
    with Producer(sink=sink, config=config, channel=FileChannel(tmp_path / "logs", minimum_free_space=0)) as producer:
        stream = producer.stream("p", "l", topic="t", source="s")
        stream.send_many([{"n": str(n)} for n in range(5)])
        stream.send({"n": "5"})
        code, out, _ = run("export", tmp_path / "logs")
    logs = rows(out)
    assert (code, [log["n"] for log in logs]) == (0, ["0", "1", "2", "3", "4", "5"])
    assert {(log["__topic__"], log["__source__"], log["__tag__:env"]) for log in logs} == {("t", "s", "test")}


@pytest.mark.parametrize("action", ["export", "peek"])
@pytest.mark.parametrize("whole", [False, True], ids=["records", "segment"])
def test_the_intact_logs_are_printed_damage_is_reported_on_the_standard_error_and_the_exit_code_is_1(
    run: Run, tmp_path: Path, action: str, whole: bool
) -> None:
    """The intact logs are printed, damage is reported on the standard error, and the exit code is 1."""
    leave(tmp_path / "logs", 15)
    [log] = sorted((tmp_path / "logs").glob("log-*"))
    content = log.read_bytes()
    start = 0 if whole else content.index(b"my-project")
    broken = b"\xff" * (len(content) if whole else 200)
    log.write_bytes(content[:start] + broken + content[start + len(broken) :])
    code, out, err = run(action, tmp_path / "logs")
    assert code == 1
    assert len(rows(out)) < 15
    assert "damaged: " in err
    assert log.name in err


def test_an_event_of_another_program_is_shown_with_its_headers_and_its_body_as_text(run: Run, directory: Path) -> None:
    """An event of another program is shown with its headers and its body as text."""
    first = rows(run("export", directory, "-n", "1")[1])[0]
    assert first["body"].startswith("body-002;")
    assert first["n"] == "2"


def test_batches_of_an_agent_are_shown_event_by_event(run: Run, tmp_path: Path) -> None:
    """An agent's batch is shown event by event, with headers and bodies."""
    batch = EventBatch.of_events([({"host": "a", "n": "1"}, b"one"), ({"host": "a"}, b"two \xff")])
    with FileChannel(tmp_path / "logs", minimum_free_space=0) as channel, channel.transaction() as transaction:
        transaction.put(write_batch(batch))
    logs = [{name: value for name, value in row.items() if name != "__event__"} for row in exported(run, tmp_path)]
    assert logs == [{"host": "a", "n": "1", "body": "one"}, {"host": "a", "body": "two \\xff"}]


def test_encrypted_events_need_their_keys(run: Run, tmp_path: Path) -> None:
    """Encrypted events without a key exit with 2, and the error names the option."""
    keys = key_file(tmp_path / "keys.json")
    with (
        FileChannel(tmp_path / "logs", encryption=FileKeys(keys), minimum_free_space=0) as channel,
        channel.transaction() as transaction,
    ):
        transaction.put(Event({}, b"hello"))
    code, out, err = run("export", tmp_path / "logs")
    assert (code, out, "--key-file" in err) == (2, "", True)
    assert rows(run("export", tmp_path / "logs", "--key-file", keys)[1])[0]["body"] == "hello"


def test_drain_all_drains_each_directory_below_the_base(
    run: Run, tmp_path: Path, target: Callable[[LogHubServer], None]
) -> None:
    """`drain --all` drains each directory below the base; it skips and reports one in use, and exits with 1."""
    for name, count in (("a", 3), ("b", 2), ("c", 1)):
        leave(tmp_path / "base" / name, count)
    with LogHubServer() as server:
        target(server)
        with FileChannel(tmp_path / "base" / "b", minimum_free_space=0):
            code, out, err = run("drain", "--all", tmp_path / "base")
        assert (code, server.count("my-project", "app-log")) == (1, 4)
        assert out.endswith("2 of 3 directories are delivered\n")
        assert err.startswith("producer channel: ")
        assert f"{tmp_path}/base/b" in err
        code, out, _ = run("drain", "--all", tmp_path / "base")
        assert (code, server.count("my-project", "app-log")) == (0, 6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base"]


def test_drain_all_stores_all_dead_letters_in_one_place_beside_the_base_where_no_process_adopts_them(
    run: Run, tmp_path: Path, target: Callable[[LogHubServer], None]
) -> None:
    """`drain --all` stores all dead letters in one place beside the base, where no process adopts them."""
    for name in ("a", "b"):
        leave(tmp_path / "base" / name, 1)
    with LogHubServer() as server:
        target(server)
        server.faults.add(answer(400, "InvalidFormat", "no"), operation="PutLogs")
        assert run("drain", "--all", tmp_path / "base")[0] == 1
    assert sorted(path.name for path in (tmp_path / "base").iterdir()) == ["a", "b"]
    letters = rows(run("export", tmp_path / "base.dead-letter")[1])
    assert [log["__error_code__"] for log in letters] == ["InvalidFormat", "InvalidFormat"]


def test_drain_of_one_processs_directory_stores_dead_letters_beside_the_base(
    run: Run, tmp_path: Path, target: Callable[[LogHubServer], None]
) -> None:
    """`drain` of one process's directory stores dead letters beside the base, where no process adopts them."""
    with ProcessFileChannel(tmp_path / "base", minimum_free_space=0) as channel:
        own = Path(channel.directory)
    leave(own, 1)
    with LogHubServer() as server:
        target(server)
        server.faults.add(answer(400, "InvalidFormat", "no"), operation="PutLogs")
        assert run("drain", own)[0] == 1
    assert [path.name for path in (tmp_path / "base").iterdir()] == [own.name]
    assert len(rows(run("export", tmp_path / "base.dead-letter")[1])) == 1


def test_drain_all_of_a_single_channel_or_of_a_directory_without_channels_exits_with_2(
    run: Run, tmp_path: Path, target: Callable[[LogHubServer], None]
) -> None:
    """`drain --all` of a single channel, or of a directory without channels, exits with 2."""
    leave(tmp_path / "logs", 1)
    (tmp_path / "nothing").mkdir()
    for path, told in (("logs", "leave --all out"), ("nothing", "no channel's directory"), ("x", "cannot be read")):
        code, _, err = run("drain", "--all", tmp_path / path, "--endpoint", "http://127.0.0.1:1")
        assert (code, told in err) == (2, True), err
