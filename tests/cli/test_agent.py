import errno
import fcntl
import http.client
import itertools
import json
import logging
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from producer.agent import Agent, AgentConfig
from producer.agent.config import parse_toml
from producer.agent.config.options import AgentConfigError, Problem
from producer.agent.config.registry import BUILT_IN, class_of
from producer.agent.monitoring.figures import notes
from producer.agent.monitoring.recent_log import RecentLog
from producer.agent.recoveries import recoveries
from producer.channels import FileChannel
from producer.cli import agent as agent_cli
from producer.cli import agent_program, main
from producer.cli.agent_program import Program, _Watched
from producer.model.interfaces import Event
from producer.model.options import options_of
from producer.runtime import signals
from producer.runtime.loggers import get_logger
from producer.server import LogHubServer
from tests.support.waiting import eventually

from ..agent.parts import Hub, plug_in

CONFIG = """
[agent]
name = "web"
state = "{state}"
[sources.r1]
type = "{source}"
channels = ["c1"]
{options}
[channels.c1]
type = "memory"
[sinks.k1]
type = "null"
channel = "c1"
"""
STRESS = {"source": "stress", "options": "max_total_events = 1000\nbatch_size = 10"}
HUB = {"source": "feed", "options": 'hub = "a"'}


def written(tmp_path: Path, *changes: tuple[str, str], source: str = "stress", options: str = "") -> str:
    text = CONFIG.format(state=tmp_path / "state", source=source, options=options)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "agent.toml"
    temporary = tmp_path / "agent.toml.new"
    temporary.write_text(text)
    temporary.replace(path)
    return str(path)


class Beside:
    """A thread of the test that acts while the command runs in the main thread."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act, self._failure = act, list[BaseException]()
        self._thread = threading.Thread(target=self._live)

    def _live(self) -> None:
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001  # it is raised where the test can see it
            self._failure.append(error)
            if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # the command still runs
                send(signal.SIGTERM)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._failure:
            raise self._failure[0]


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr(agent_program, "POLL_SECONDS", 0.02)
    return plug_in(monkeypatch, "a")[0]


def test_check_prints_the_path_from_each_source_to_its_sinks_starts_nothing_and_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` prints the path from each source to its sinks, starts nothing, and exits with 0."""
    options = '[[sources.r1.interceptors]]\nname = "when"\ntype = "timestamp"'
    letters = ('channel = "c1"', 'channel = "c1"\ndead_letters = "c2"\n[channels.c2]\ntype = "file"')
    assert main(["agent", "check", "--config", written(tmp_path, letters, options=options)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == [
        f"agent web: {tmp_path}/agent.toml is valid",
        f"  state       {tmp_path}/state",
        "  monitoring  off",
        "source r1 (stress)",
        "  -> when (timestamp) -> c1",
        "channel c1 (memory)",
        "  -> sink k1 (null); refused events -> c2",
        "channel c2 (file)",
    ]
    assert not (tmp_path / "state").exists()


def test_check_reports_missing_certificates_programs_and_directories_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` reports missing certificates, programs and directories with their lines, and exits with 1; an agent
    starts without them.
    """
    lines = [
        *('[sources.tls]\ntype = "netcat"\nport = 1\nchannels = ["c1"]', f'certificate = "{tmp_path}/none.pem"'),
        *('[sources.run]\ntype = "exec"\nchannels = ["c1"]', 'command = "no-such-program --of-mine"'),
        *('[sources.spool]\ntype = "spooldir"\nchannels = ["c9"]', f'spool_directory = "{tmp_path}/none"'),
        *('[sinks.http]\ntype = "http"\nchannel = "c1"\nendpoint = "https://x/"', 'certificate = "none.pem"'),
        *(
            '[sinks.peer]\ntype = "thrift"\nchannel = "c1"\nhostname = "x"\nport = 1\ntls = true',
            'authorities = "none"',
        ),
        *(
            '[channels.c9]\ntype = "file"',
            f'key_file = "{tmp_path}/none.json"',
            '[sinks.k9]\ntype = "null"\nchannel = "c9"',
        ),
    ]
    path = written(tmp_path, ("[channels.c1]", "\n".join([*lines, "[channels.c1]"])))
    assert main(["agent", "check", "--config", path]) == 1
    none, told = "No such file or directory", capsys.readouterr()
    assert told.out.startswith(f"agent web: {path} is valid, but this machine lacks 6 resources that it names\n")
    assert told.err.splitlines() == [
        f"producer agent: on this machine, line {line}: {text}"
        for line, text in (
            (13, f"sources.tls.certificate: cannot be read: {none}, got '{tmp_path}/none.pem'"),
            (17, "sources.run.command: there is no such program, got 'no-such-program'"),
            (21, f"sources.spool.spool_directory: there is no such directory, got '{tmp_path}/none'"),
            (26, f"sinks.http.certificate: cannot be read: {none}, got 'none.pem'"),
            (33, f"sinks.peer.authorities: cannot be used: [Errno 2] {none}, got 'none'"),
            (36, f"channels.c9.key_file: the key file cannot be read (FileNotFoundError), got '{tmp_path}/none.json'"),
        )
    ]


@pytest.mark.parametrize("before", [[], ["check"]])
def test_running_and_checking_an_invalid_configuration_print_every_problem_exit_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: list[str]
) -> None:
    """Running and checking an invalid configuration print every problem, exit with 2, and start nothing."""
    path = written(tmp_path, ('type = "null"', 'type = "nul"'), options="sise = 1")
    assert main(["agent", *before, "--config", path, "--monitoring", "nowhere"]) == 2
    assert capsys.readouterr().err == (
        f"producer agent: {path}: 3 problems\n"
        "  line 8: sources.r1.sise: unknown option; did you mean size?\n"
        "  line 12: sinks.k1.type: no such type 'nul'; did you mean 'null'?\n"
        "  agent.monitoring: must be host:port or a port, such as 127.0.0.1:9180, got 'nowhere'\n"
    )
    assert not (tmp_path / "state").exists()


def test_one_file_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """The command needs exactly one configuration file."""
    assert main(["agent"]) == 2
    assert "--config FILE or --flume FILE is needed" in capsys.readouterr().err
    assert main(["agent", "--config", "a", "check", "--flume", "b"]) == 2
    assert "--config or --flume, not both" in capsys.readouterr().err


def test_until_done_ends_when_all_is_delivered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With --until-done the agent exits with 0 when its sources are done and its sinks have everything.

    The log has the state directory, the reason of the end, and the remaining events, including those of a former
    channel.
    """
    former = tmp_path / "state/channels/former/events"
    former.parent.mkdir(parents=True)
    with FileChannel(former) as channel, channel.transaction() as transaction:
        transaction.put(Event({}, b"left"))
        transaction.commit()
    assert main(["agent", "--config", written(tmp_path, **STRESS), "--until-done"]) == 0
    assert logging.getLogger("loghub.send_task").level == logging.NOTSET, "the level is not restored"
    told = [
        f"1 source, 1 channel, 1 sink at work; state in {tmp_path}/state",
        "ends: all is done",
        f"ended; no event remains in its channels; {former}, which no channel uses, had 1 event",
    ]
    assert caplog.messages[0].startswith(f"agent web: no channel uses {former}, and 1 event in it")
    assert caplog.messages[1:] == [f"agent web: {line}" for line in told]


def test_reports_such_as_rotations_are_shown_on_the_page_only(caplog: pytest.LogCaptureFixture) -> None:
    """A running agent logs rotations and the like for its page only; recoveries and warnings go to its log, too."""
    log, page = get_logger("loghub.agent.source.taildir"), RecentLog(dict)
    try:
        with agent_cli._log_levels():
            log.info("a was renamed to b")
            recoveries.info("sink k1 delivers again")
            log.warning("cannot read c")
        log.info("without an agent")
        told = [line["text"] for line in reversed(page.lines())]
    finally:
        page.close()
    assert caplog.messages == ["sink k1 delivers again", "cannot read c"]
    assert told == ["a was renamed to b", "sink k1 delivers again", "cannot read c"]


def test_with_until_done_the_agent_waits_for_an_absent_destination_until_its_channels_are_empty(
    tmp_path: Path, hub: Hub
) -> None:
    """With --until-done the agent waits for an absent destination until its channels are empty."""
    hub.failing = True

    def act() -> None:
        hub.lines.put(b"one\n")
        for _ in range(3):
            eventually(lambda: hub.writing)
            hub.writing = False
        hub.failing = False

    kept = (
        ('"null"', '"keep"\nhub = "a"'),
        ('type = "memory"', 'type = "file"'),
        ('hub = "a"\n[', 'hub = "a"\ncount = 1\n['),
    )
    with Beside(act):
        assert main(["agent", "--config", written(tmp_path, *kept, **HUB), "--until-done"]) == 0
    assert hub.delivered == [b"one"]


def test_events_lost_at_the_end_are_in_the_last_log_line_and_the_exit_code_is_1(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    """Events lost at the end are in the last log line, and the exit code is 1."""
    hub.failing = True

    def act() -> None:
        eventually(lambda: "at work" in caplog.text and hub.writing)
        send(signal.SIGTERM)

    kept = ('"null"', '"keep"\nhub = "a"'), ('name = "web"', 'name = "web"\nstop_timeout = 0.5')
    with Beside(act):
        assert main(["agent", "--config", written(tmp_path, *kept, **STRESS)]) == 1
    assert re.search(r"c1: \d+ events were not delivered in time; \d+ of them are lost", caplog.text)
    assert caplog.messages[-1] == "agent web: ended, but not all of it in time"


def test_state_lies_beside_the_file_wherever_it_is_started_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A relative state directory is below the configuration's folder, whatever the working directory."""
    path = written(tmp_path, (f'state = "{tmp_path}/state"', 'state = "kept"'))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["agent", "check", "--config", path]) == 0
    assert f"  state       {tmp_path}/kept\n" in capsys.readouterr().out


def test_until_done_is_refused_with_a_source_that_always_waits_for_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--until-done refuses a source that always waits for more, and names it."""
    path = written(tmp_path, source="taildir", options='paths = ["/var/log/*.log"]')
    assert main(["agent", "--config", path, "--until-done"]) == 2
    assert capsys.readouterr().err == (
        f"producer agent: {path}: 1 problem\n"
        "  line 5: sources.r1: --until-done would never end: taildir always waits for more\n"
    )


def test_a_hangup_before_the_agent_is_up_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGHUP during the first load reloads the configuration once the agent runs."""
    load = agent_cli._load

    def hung_up(args: object) -> object:
        monkeypatch.setattr(agent_cli, "_load", load)
        former = signal.signal(
            signal.SIGHUP, signal.SIG_IGN
        )  # in the old program the default, which would end the test
        signal.signal(signal.SIGHUP, former)
        assert callable(former)
        send(signal.SIGHUP)
        return load(args)

    monkeypatch.setattr(agent_cli, "_load", hung_up)

    def act() -> None:
        eventually(lambda: "no component has changed" in caplog.text)
        send(signal.SIGTERM)

    with Beside(act):
        assert main(["agent", "--config", written(tmp_path, **STRESS)]) == 0
    assert "agent web: ends: SIGTERM" in caplog.text


def test_a_configuration_file_that_disappears_is_reported_once(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    """A configuration file that disappears is reported once; the agent keeps running, and reads it when it is back."""
    path = written(tmp_path, **HUB)
    gone = f"agent web continues: its file {path} is gone"

    def act() -> None:
        eventually(lambda: "at work" in caplog.text)
        Path(path).unlink()
        eventually(lambda: gone in caplog.messages)
        written(tmp_path, ('type = "null"', 'type = "null"\nbatch_size = 7'), **HUB)
        eventually(lambda: "changed: sink k1" in caplog.text)
        send(signal.SIGTERM)

    with Beside(act):
        assert main(["agent", "--config", path]) == 0
    assert caplog.messages.count(gone) == 1


def test_flumes_file_runs_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The agent runs a Flume file; unknown keys are errors, or warnings with --ignore-unknown."""
    path = tmp_path / "flume.properties"
    path.write_text(
        "a1.sources = r1\na1.channels = c1\na1.sinks = k1\n"
        "a1.sources.r1.type = seq\na1.sources.r1.channels = c1\na1.sources.r1.totalEvents = 100\n"
        "a1.channels.c1.type = memory\na1.sinks.k1.type = null\na1.sinks.k1.channel = c1\na1.sinks.k1.x = y\n"
    )
    flume = ["agent", "--flume", str(path), "--name", "a1", "--state", str(tmp_path / "state")]
    assert main([*flume, "--until-done"]) == 2
    assert "line 10: a1.sinks.k1.x: is not known" in capsys.readouterr().err
    assert main([*flume, "--until-done", "--ignore-unknown"]) == 0
    assert "line 10: a1.sinks.k1.x is not known; ignored" in capsys.readouterr().err
    assert main(["agent", "convert", "--flume", str(path)]) == 0
    toml = tmp_path / "agent.toml"
    toml.write_text(capsys.readouterr().out)
    assert main(["agent", "check", "--config", str(toml)]) == 0


def test_a_channel_that_cannot_be_opened_ends_it_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A channel that cannot be opened ends the agent with one line and exit code 1."""
    (tmp_path / "file").write_text("in the way")
    path = written(tmp_path, ('"memory"', f'"file"\ndirectory = "{tmp_path}/file/x"'), **STRESS)
    assert main(["agent", "--config", path]) == 1
    assert re.fullmatch(r"producer agent: channel c1 cannot be opened: .*\n", capsys.readouterr().err)


def test_a_state_directory_that_another_agent_uses_or_that_cannot_be_created_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A state directory that another agent uses, or that cannot be created, is refused."""
    path = written(tmp_path, **STRESS)
    assert main(["agent", "--config", path, "--until-done"]) == 0  # it leaves its name in the lock
    capsys.readouterr()
    with (tmp_path / "state/lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main(["agent", "--config", path, "--until-done"]) == 1
    assert capsys.readouterr().err == (
        f"producer agent: process {os.getpid()} on {socket.gethostname()} uses the state directory"
        f" {tmp_path}/state: stop it first, or give this agent a state directory"
        " of its own (agent.state, or --state DIR)\n"
    )
    assert main(["agent", "--config", path, "--state", str(tmp_path / "agent.toml/x")]) == 1
    assert "cannot use the state directory" in (told := capsys.readouterr().err)
    assert "name another one (agent.state, or --state DIR)" in told


def test_a_lock_has_the_name_of_its_current_holder_only_even_if_the_former_name_was_longer(tmp_path: Path) -> None:
    """A lock has the name of its current holder only, even if the former name was longer."""
    (tmp_path / "lock").write_text(f"process 4194304 on {'x' * 64}\n")
    with agent_program._state_held(tmp_path):
        assert (tmp_path / "lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_an_agent_whose_lock_is_deleted_stops_with_a_reason(tmp_path: Path) -> None:
    """An agent whose lock is deleted stops with a reason; until then the directory's own lock refuses others."""
    with agent_program._state_held(tmp_path) as lock:
        agent_program._check_is_held(lock)
        (tmp_path / "lock").unlink()
        with pytest.raises(agent_program.StateInUseError, match="stop it first"), agent_program._state_held(tmp_path):
            pass
        with pytest.raises(
            agent_program.StateInUseError, match="lock was removed or replaced, so another agent may use"
        ):
            agent_program._check_is_held(lock)


def test_an_agent_starts_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent starts on a full disk, and delivers its channels; only its name in the lock is missing."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(agent_program.os, "pwrite", refuse)
    assert main(["agent", "--config", written(tmp_path, **STRESS), "--until-done"]) == 0
    assert capsys.readouterr().err == ""


def test_a_change_of_the_file_and_sighup_are_taken_up(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    """A changed file and SIGHUP restart only the changed components; an invalid file is only reported."""
    path = written(tmp_path, **HUB)

    def act() -> None:
        eventually(lambda: "at work" in caplog.text)
        eventually(lambda: hub.made == 1)
        written(tmp_path, ('type = "null"', 'type = "null"\nbatch_size = 7'), **HUB)
        eventually(lambda: "read its configuration again; changed: sink k1" in caplog.text)
        written(tmp_path, ('type = "null"', 'type = "nul"'), **HUB)
        eventually(lambda: "line 12: sinks.k1.type: no such type 'nul'" in caplog.text)
        written(tmp_path, ("[sinks.k1]", "[sinks.k9]"), **HUB)
        eventually(lambda: "new: sink k9; removed: sink k1" in caplog.text)
        send(signal.SIGHUP)
        eventually(lambda: "no component has changed" in caplog.text)
        send(signal.SIGTERM)

    with Beside(act):
        assert main(["agent", "--config", path]) == 0
    assert "keeps its configuration" in caplog.text
    assert hub.made == 1


def test_monitoring_that_cannot_listen_at_its_new_address_keeps_listening_at_the_former_one(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    """Monitoring that cannot listen at its new address keeps listening at the former one."""
    path = written(tmp_path, **HUB)
    found: list[int] = []

    def act() -> None:
        eventually(lambda: "monitoring on" in caplog.text)
        url = re.search(r"monitoring on (\S+)", caplog.text)[1]
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            written(tmp_path, ('name = "web"', f'name = "web"\nmonitoring = "127.0.0.1:{port}"'), **HUB)
            eventually(lambda: f"it continues at {url}" in caplog.text)
        with urlopen(f"{url}health/live", timeout=60) as answer:
            found.append(answer.status)
        send(signal.SIGTERM)

    written(tmp_path, ('name = "web"', 'name = "web"\nmonitoring = "0"'), **HUB)
    with Beside(act):
        assert main(["agent", "--config", path]) == 0
    assert found == [200]
    assert "monitoring cannot listen on" in caplog.text


@pytest.mark.parametrize("ends", [True, False], ids=["process", "caller continues"])
def test_a_hangup_after_the_end_does_not_take_the_place_of_the_exit_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """SIGHUP at the end does not change the exit code, and its former effect returns if the process continues."""
    former = {number: signal.getsignal(number) for number in (signal.SIGHUP, *signals.STOP_SIGNALS)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    monkeypatch.setattr("sys.argv", ["producer", "agent", "--config", written(tmp_path, **STRESS)])

    def act() -> None:
        eventually(lambda: "at work" in caplog.text)
        send(signal.SIGTERM)

    try:
        with Beside(act):
            assert main(None if ends else sys.argv[1:]) == 0
        assert signal.getsignal(signal.SIGHUP) is (signal.SIG_IGN if ends else signal.SIG_DFL)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def test_an_unexpected_error_of_a_reload_is_logged_with_its_traceback_and_the_agent_keeps_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected error of a reload is logged with its traceback, and the agent keeps running."""

    def load() -> AgentConfig:
        raise RuntimeError("a mistake of ours")

    agent = Agent(parse_toml(CONFIG.format(state=tmp_path, **STRESS)))
    Program(load, Path("nowhere"), until_done=False, watch=False)._reload(agent)
    assert [record.message for record in caplog.records] == [
        "agent web keeps its configuration: the new one cannot take effect"
    ]
    assert "a mistake of ours" in caplog.text


def test_a_second_signal_ends_it_at_once(
    tmp_path: Path,
    hub: Hub,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second SIGTERM ends the agent at once with 143."""
    monkeypatch.setattr(signals, "ECHO", 0.0)
    hub.failing = True
    changes = ('"null"', '"keep"\nhub = "a"'), ('name = "web"', 'name = "web"\nstop_timeout = 60')

    def act() -> None:
        hub.lines.put(b"one\n")
        eventually(lambda: hub.writing)
        send(signal.SIGTERM)
        eventually(lambda: "agent web: ends: SIGTERM" in caplog.messages)
        send(signal.SIGTERM)

    with Beside(act):
        assert main(["agent", "--config", written(tmp_path, *changes, **HUB)]) == 143
    assert capsys.readouterr().err.endswith("producer agent: terminated\n")
    hub.failing = False


def test_an_end_at_once_closes_the_channels(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is ended at once closes its channels, and the undelivered events stay in them."""
    monkeypatch.setattr(signals, "ECHO", 0.0)
    monkeypatch.setattr(Agent, "stop", interrupted_once(Agent.stop))
    hub.failing = True

    def act() -> None:
        hub.lines.put(b"one\n")
        eventually(lambda: hub.writing)
        send(signal.SIGTERM)

    kept = ('"null"', '"keep"\nhub = "a"'), ('type = "memory"', 'type = "file"')
    with Beside(act):
        assert main(["agent", "--config", written(tmp_path, *kept, **HUB)]) == 130
    with FileChannel(tmp_path / "state/channels/c1/events") as channel:
        assert channel.stats().size == 1


def interrupted_once(stop: Callable[..., bool]) -> Callable[..., bool]:
    """Raise an interrupt once, like a second signal during a graceful shutdown."""
    calls = itertools.count()

    def interrupted(agent: Agent, timeout: float | None = None) -> bool:
        if next(calls) == 0:
            raise KeyboardInterrupt
        return stop(agent, timeout)

    return interrupted


def test_the_monitoring_ends_with_the_agent(tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    """The monitoring port is closed with the agent, even if the process continues."""
    ports = list[int]()

    def act() -> None:
        eventually(lambda: "monitoring on" in caplog.text)
        found = re.search(r"monitoring on http://127.0.0.1:(\d+)", caplog.text)
        assert found is not None
        ports.append(int(found[1]))
        socket.create_connection(("127.0.0.1", ports[0])).close()
        send(signal.SIGTERM)

    with Beside(act):
        assert main(["agent", "--config", written(tmp_path, **HUB), "--monitoring", "0"]) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]))


def test_warnings_about_a_changed_file_are_logged_when_it_is_applied(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    """Warnings about a changed file are logged when it is applied."""
    letters = ('channel = "c1"\n', 'channel = "c1"\ndead_letters = "dead"\n[channels.dead]\ntype = "memory"\n')

    def act() -> None:
        eventually(lambda: "at work" in caplog.text)
        written(tmp_path, letters, **HUB)
        eventually(lambda: "read its configuration again" in caplog.text)
        eventually(lambda: "channels.dead: no sink takes from it: refused events stay in it" in caplog.text)
        send(signal.SIGTERM)

    with Beside(act):
        assert main(["agent", "--config", written(tmp_path, **HUB)]) == 0


def test_a_signal_that_arrives_twice_at_once_counts_as_one(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that arrives twice at once counts as one, as from coreutils' `timeout`: the shutdown is graceful."""
    monkeypatch.setattr(signals, "ECHO", 3600.0)
    hub.failing = True

    def act() -> None:
        hub.lines.put(b"one\n")
        eventually(lambda: hub.writing)
        send(signal.SIGTERM)
        eventually(lambda: "agent web: ends: SIGTERM" in caplog.messages)
        send(signal.SIGTERM)
        hub.failing = False

    with Beside(act):
        assert main(["agent", "--config", written(tmp_path, ('"null"', '"keep"\nhub = "a"'), **HUB)]) == 0
    assert hub.delivered == [b"one"]


def test_the_log_and_metrics_report_an_invalid_file_until_it_is_valid_again(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    """The log and metrics report an invalid file until it is valid again."""
    monitored = ('name = "web"', 'name = "web"\nmonitoring = "0"')
    path = written(tmp_path, monitored, **HUB)
    seen: list[tuple[str, dict[str, object]]] = []

    def look(url: str) -> None:
        with urlopen(f"{url}metrics", timeout=60) as answer:
            (value,) = re.findall(
                r"^\w+_config_last_reload_successful\{.*\} (.*)$", answer.read().decode(), re.MULTILINE
            )
        with urlopen(f"{url}health/ready", timeout=60) as answer:
            seen.append((value, json.load(answer)))

    def act() -> None:
        eventually(lambda: "monitoring on" in caplog.text)
        url = re.search(r"monitoring on (\S+)", caplog.text)[1]
        look(url)
        written(tmp_path, monitored, ('type = "null"', 'type = "nul"'), **HUB)
        eventually(lambda: "keeps its configuration" in caplog.text)
        look(url)
        written(tmp_path, monitored, **HUB)
        eventually(lambda: "agent web: its configuration is valid again, and applied" in caplog.messages)
        look(url)
        send(signal.SIGTERM)

    with Beside(act):
        assert main(["agent", "--config", path]) == 0
    well, wrong, mended = seen
    assert well == mended == ("1.0", {"ready": True, "reasons": []})
    assert (wrong[0], wrong[1]["ready"]) == ("0.0", True)
    (note,) = wrong[1]["notes"]  # type: ignore[misc]
    assert note.startswith("the file's configuration is not running: ")
    assert "line 13: sinks.k1.type: no such type 'nul'" in note


def test_a_change_that_would_lose_events_is_refused_while_the_sink_fails(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    """A change that would lose events is refused while the sink fails, and applied once the sink has delivered them."""
    keeps = ('"null"', '"keep"\nhub = "a"')
    stops = ("[sources.r1]", "stop_timeout = 0.05\n[sources.r1]")
    hub.failing = True

    def act() -> None:
        eventually(lambda: "at work" in caplog.text)
        hub.lines.put(b"one\n")
        eventually(lambda: hub.number == 1)
        written(tmp_path, keeps, stops, ('type = "memory"', 'type = "memory"\ncapacity = 7'), **HUB)
        eventually(lambda: "keeps its configuration: channel c1 holds 1 event that would be lost" in caplog.text)
        hub.lines.put(b"two\n")
        eventually(lambda: hub.number == 2)
        assert "read its configuration again" not in caplog.text
        hub.failing = False
        eventually(lambda: "read its configuration again; changed: channel c1, sink k1, source r1" in caplog.text)
        eventually(lambda: "its configuration is valid again" in caplog.text)
        send(signal.SIGTERM)

    with Beside(act):
        assert main(["agent", "--config", written(tmp_path, keeps, stops, **HUB)]) == 0
    assert "its sinks did not deliver them in 0.05 s; the reload is retried once they have" in caplog.text
    assert hub.delivered == [b"one", b"two"]


def test_a_monitoring_that_could_not_listen_is_tried_again_by_sighup(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    """After SIGHUP, monitoring listens on a port that was in use at the first attempt."""

    def act() -> None:
        eventually(lambda: "at work" in caplog.text)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            written(tmp_path, ('name = "web"', f'name = "web"\nmonitoring = "127.0.0.1:{port}"'), **HUB)
            eventually(lambda: "monitoring cannot listen on" in caplog.text)
        send(signal.SIGHUP)
        eventually(lambda: "its configuration is valid again" in caplog.text)
        with urlopen(f"http://127.0.0.1:{port}/health/live", timeout=60) as answer:
            assert answer.status == 200
        send(signal.SIGTERM)

    with Beside(act):
        assert main(["agent", "--config", written(tmp_path, **HUB)]) == 0


def test_a_file_that_is_moved_away_and_back_unchanged_is_read_again(tmp_path: Path) -> None:
    """A file that is moved away and back unchanged is read again, which ends the report of its absence."""
    path = tmp_path / "agent.toml"
    path.write_text("x")
    watched = _Watched(path)
    path.rename(tmp_path / "away")
    assert (watched.changed(), watched.vanished(), watched.changed(), watched.vanished()) == (False, True, False, False)
    (tmp_path / "away").rename(path)
    assert (watched.changed(), watched.vanished(), watched.changed(), watched.changed()) == (False, False, True, False)


def test_a_file_that_sighup_has_read_is_not_read_again_for_its_change_and_its_error_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that SIGHUP has read is not read again for its change, and its error is reported once."""
    path = tmp_path / "agent.toml"
    path.write_text("x")
    read = list[str]()

    def load() -> AgentConfig:
        read.append(path.read_text())
        raise AgentConfigError([Problem("", "", "there is a mistake")])

    agent = Agent(parse_toml(CONFIG.format(state=tmp_path, **STRESS)))
    program = Program(load, path, until_done=False, watch=True)
    path.write_text("changed")
    program._reload(agent)
    assert [program._is_due() for _ in range(3)] == [False] * 3
    path.write_text("changed again")
    assert [program._is_due() for _ in range(3)] == [False, True, False]
    assert read == ["changed"]


def test_a_file_that_is_gone_is_a_note(tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    """A missing file is reported as a warning: the agent would not start again."""
    agent = Agent(parse_toml(CONFIG.format(state=tmp_path, **STRESS)))
    agent.reloads.failed("its file agent.toml is gone")
    assert notes(agent) == ["the file's configuration is not running: its file agent.toml is gone"]
    assert agent.reloads.worked()
    assert notes(agent) == []


def test_an_agent_notifies_systemd_serves_its_monitoring_and_exits_with_0_after_sigterm(tmp_path: Path) -> None:
    """An agent notifies systemd, serves its monitoring, and exits with 0 after SIGTERM; it imports neither Spark nor
    the server.
    """
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with socket.create_server(("127.0.0.1", 0)) as free:
        listening = free.getsockname()[1]
    (tmp_path / "late.py").write_text(f"open({str(gate)!r}).read()\ndef same(batch):\n    return batch\n")
    options = f'port = {listening}\n[[sources.r1.interceptors]]\ntype = "python"\nfunction = "late:same"'
    path = written(tmp_path, ('name = "web"', 'name = "web"\nmonitoring = "0"'), source="netcat", options=options)
    program = (
        "import sys; from producer.cli import main; code = main(sys.argv[1:]);"
        "print(sorted({'pyspark', 'starlette', 'pyarrow', 'uvicorn', 'google.protobuf'} & set(sys.modules)));"
        "sys.exit(code)"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        paths = os.pathsep.join([str(tmp_path), *sys.path])
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "PYTHONPATH": paths}
        command = [sys.executable, "-c", program, "agent", "--config", path]
        with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=environment) as process:
            try:
                with gate.open("w"):  # the source is in the middle of its creation
                    assert select.select([systemd], [], [], 0)[0] == []
                assert systemd.recv(100) == b"READY=1"
                socket.create_connection(("127.0.0.1", listening), timeout=60).close()
                line = process.stderr.readline()
                port = int(re.search(r"monitoring on http://127.0.0.1:(\d+)/", line)[1])
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("GET", "/health/live")
                assert connection.getresponse().status == 200
                connection.close()
                process.send_signal(signal.SIGTERM)
                assert systemd.recv(100) == b"STOPPING=1"
                out, err = process.communicate(timeout=60)
                assert (process.returncode, out) == (0, "[]\n")
                times = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO loghub.agent.program: "
                assert re.fullmatch(
                    f"{times}agent web: ends: SIGTERM\n{times}agent web: ended; no event remains in its channels\n", err
                )
            finally:
                process.kill()


def test_explain_tells_each_types_options(capsys: pytest.CaptureFixture[str]) -> None:
    """`explain` lists name, type, default, rule and Flume's name of each option, and describes each type."""
    seen: set[str] = set()
    for kind, types in BUILT_IN.items():
        for name in types:
            try:
                fields = options_of(class_of(kind, name).Options)
            except ImportError:
                continue
            assert main(["agent", "explain", f"{kind}.{name}"]) == 0
            told = capsys.readouterr().out
            assert [field for field in fields if f"\n  {field}: " not in told] == []
            assert "See the" not in told
            what = told.split("\n\n")[0].partition("\n")[2]
            assert what not in seen
            seen.add(what)
    main(["agent", "explain", "SEQ"])
    assert "sources.sequence\n" in capsys.readouterr().out
    assert main(["agent", "explain", "memmory"]) == 2
    assert "did you mean 'memory'?" in capsys.readouterr().err
    assert main(["agent", "explain"]) == 0
    assert "channels: file, memory, spillable" in capsys.readouterr().out


def test_an_agent_may_have_as_many_files_open_as_the_system_lets_it() -> None:
    """An agent raises its limit of open files to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1024), hard))
        agent_program._open_many_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, 65_536), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_check_lists_peers_that_it_did_not_query(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check` lists peers that it did not query; with --connect a wrong key and a dead endpoint are errors."""
    path = tmp_path / "agent.toml"
    with LogHubServer() as server, socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        sinks = "".join(
            f"""[sinks.{name}]
type = "loghub"
channel = "c"
project = "my-project"
logstore = "app-log"
endpoint = "{server.endpoint}"
access_key_id = "{server.access_key_id}"
access_key_secret = "{secret}"
"""
            for name, secret in (("good", server.access_key_secret), ("bad", "wrong"))
        )
        path.write_text(
            f"""[sources.s]
type = "stress"
channels = ["c"]
[channels.c]
type = "memory"
{sinks}[sinks.dead]
type = "http"
channel = "c"
endpoint = "http://127.0.0.1:{dead.getsockname()[1]}/"
[sinks.search]
type = "elasticsearch"
channel = "c"
endpoint = "http://127.0.0.1:{dead.getsockname()[1]}/"
index = "logs"
"""
        )
        assert main(["agent", "check", "--config", str(path)]) == 0
        said = capsys.readouterr().out
        assert "not checked: whether" in said
        assert "sinks.good (loghub), sinks.bad (loghub), sinks.dead (http), sinks.search (elasticsearch)" in said
        assert main(["agent", "check", "--config", str(path), "--connect"]) == 1
    said = capsys.readouterr()
    assert "sinks.good (loghub): " in said.out
    assert "producer agent: sinks.bad (loghub): " in said.err
    for sink in (r"dead \(http\)", r"search \(elasticsearch\)"):
        assert re.search(rf"producer agent: sinks.{sink}: .*127.0.0.1:\d+ does not answer", said.err)
