"""``producer ship -`` ships standard input as it arrives, to its end."""

import array
import fcntl
import io
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console

from producer.cli import ship as cli
from producer.server import LogHubServer
from producer.server.faults import answer
from producer.ship.job import ShipJob
from producer.ship.report import Shipment
from producer.ship.standard_input import ship_standard_input
from tests.support.waiting import Call, eventually

from .conftest import LOGSTORE, PATIENCE, PROJECT, contents, held, parse_ship, ship_arguments

MakeJob = Callable[..., ShipJob]


class Shipping:
    """A command whose standard input the test writes, with its output."""

    def __init__(self, job: ShipJob, settle: float) -> None:
        read, self.write = os.pipe()
        self.shipment: Shipment | None = None

        def ship() -> None:
            self.shipment = ship_standard_input(
                job, settle=settle, console=Console(file=io.StringIO()), descriptor=read
            )
            os.close(read)

        self._thread = threading.Thread(target=ship)
        self._thread.start()

    def send(self, data: bytes, times: int = 1) -> None:
        os.write(self.write, data * times)

    def end(self) -> Shipment:
        if self.write >= 0:
            os.close(self.write)
            self.write = -1
        self._thread.join(PATIENCE)
        assert self.shipment is not None
        return self.shipment


@pytest.fixture
def ship(make_job: MakeJob) -> Iterator[Callable[..., Shipping]]:
    begun: list[Shipping] = []

    def start(*, settle: float = 3600.0, **options: object) -> Shipping:
        begun.append(Shipping(make_job(**options), settle))
        return begun[-1]

    yield start
    for each in begun:
        each.end()


def test_a_byte_order_mark_is_not_part_of_the_first_line_even_if_it_arrives_byte_by_byte(
    server: LogHubServer, ship: Callable[..., Shipping]
) -> None:
    """A byte order mark is not part of the first line, even if it arrives byte by byte."""
    shipping = ship(parser="text")
    for byte in "\ufeffone\n".encode():
        shipping.send(bytes([byte]))
    shipping.end()
    assert contents(server) == ["one"]


def test_input_of_another_encoding_becomes_utf8(server: LogHubServer, ship: Callable[..., Shipping]) -> None:
    """With ``--encoding``, lines are delivered while the input goes on, even if characters arrive in parts."""
    shipping = ship(parser="text", encoding="utf-16", multiline_start=r"\d", settle=0.5)
    raw = "1 \u4e2d\n\tat\n2 \u0a0a\n".encode("utf-16-be")
    for byte in b"\xfe\xff" + raw:
        shipping.send(bytes([byte]))
    eventually(lambda: contents(server) == ["1 \u4e2d\n\tat", "2 \u0a0a"], "the logs")
    shipping.end()
    plain = ship(parser="text", encoding="gbk")
    plain.send("\u4e2d\n".encode("gbk") + b"x\xd6")
    eventually(lambda: "\u4e2d" in contents(server), "the line")
    plain.end()
    assert r"x\xd6" in contents(server)


def test_whole_lines_are_sent_after_the_linger_time(server: LogHubServer, ship: Callable[..., Shipping]) -> None:
    """Whole lines are sent after the linger time; an unfinished one waits for its end, or for that of the input."""
    shipping = ship(parser="text")
    shipping.send(b"one\ntwo\nunfin")
    eventually(lambda: contents(server) == ["one", "two"], "the lines")
    shipping.send(b"ished\r\nlast")
    eventually(lambda: contents(server)[2:] == ["unfinished"], "the line")
    shipment = shipping.end()
    assert contents(server)[3:] == ["last"]
    assert (shipment.failure, shipment.figures.lines, shipment.figures.records) == (None, 4, 4)
    assert [(log["__tag__:__path__"], log["__file_offset__"]) for log in held(server)] == [
        ("-", "0"),
        ("-", "4"),
        ("-", "8"),
        ("-", "20"),
    ]


def test_header_of_the_input_names_the_columns(server: LogHubServer, ship: Callable[..., Shipping]) -> None:
    """The first line of the input names the columns."""
    shipping = ship(parser="delimited")
    shipping.send(b"a,b\n1,2\n")
    shipping.end()
    ((log),) = held(server)
    assert (log["a"], log["b"], log["content"]) == ("1", "2", "1,2")


def test_log_of_several_lines_waits_for_its_time(server: LogHubServer, ship: Callable[..., Shipping]) -> None:
    """The last multi-line log is shipped after its settle time, as the next may never arrive."""
    shipping = ship(parser="text", multiline_start=r"\d", settle=0.5)
    shipping.send(b"1 a\n\tat\n2 b\n")
    eventually(lambda: contents(server) == ["1 a\n\tat", "2 b"], "the logs")
    shipping.send(b"3 c\n\tat\n")
    shipping.end()
    assert contents(server)[2:] == ["3 c\n\tat"]


def test_a_refused_line_fails_the_command_before_the_input_ends(
    server: LogHubServer, ship: Callable[..., Shipping]
) -> None:
    """A refused line fails the command before the input ends."""
    server.faults.add(answer(404, "LogStoreNotExist"), operation="PutLogs")
    shipping = ship(parser="text")
    shipping.send(b"one\n")
    shipping._thread.join(PATIENCE)
    assert shipping.shipment is not None
    assert shipping.shipment.failure is not None
    assert "a line of - from byte 0 on" in shipping.shipment.failure


def test_writer_of_the_pipe_waits_while_the_server_does(server: LogHubServer, ship: Callable[..., Shipping]) -> None:
    """The producer's memory limits how much is read ahead, and the table has the time of waiting."""
    memory = {"total_size_in_bytes": 1 << 20, "batch_size_threshold_in_bytes": 1 << 16, "max_retry_backoff_ms": 50}
    busy = server.faults.add(answer(500, "ServerBusy"), operation="PutLogs")
    shipping = ship(parser="text", producer={**memory, "retries": 10_000})
    lines = 160_000
    writer = Call(lambda: shipping.send(b"x" * 99 + b"\n", lines))
    eventually(lambda: busy.fired > 2, "the requests")
    assert not writer.done
    server.faults.remove(busy)
    writer.result(PATIENCE)
    figures = shipping.end().figures
    assert (figures.records, server.count(PROJECT, LOGSTORE)) == (lines, lines)
    assert figures.memory_wait_ms > 0


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM])
def test_end_and_signals_drain(server: LogHubServer, number: int | None) -> None:
    """At the end of the input and on signals, all lines read are acknowledged, and the exit code is 0."""
    command = [
        sys.executable,
        "-m",
        "producer",
        "ship",
        *ship_arguments(server, "-"),
        "--producer-option=linger_ms=60000",
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        try:
            assert process.stdin is not None
            process.stdin.write(b"x" * 60_000 + b"\n" + b"y" * 60_000 + b"\nunfinished")
            process.stdin.flush()
            if number is not None:
                # A pipe holds 64 KiB, so the rest has been read when it is empty.
                eventually(lambda: _unread(process.stdin) == 0, "that all is read")
                process.send_signal(number)
                assert process.wait(PATIENCE) == 0
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert b"records acknowledged" in out
    assert [len(text) for text in contents(server)] == [60_000, 60_000, 10]
    assert server.count(PROJECT, LOGSTORE) == 3


def _unread(pipe: object) -> int:
    size = array.array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, size)  # type: ignore[attr-defined]
    return size[0]


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["/tmp"], "- (standard input) cannot be combined"),
        (["--follow", "--checkpoint=/tmp/x"], "--follow and --exactly-once are for files"),
        (["--engine=spark"], "leave out --engine spark"),
        (["--workers=2"], "leave out --engine spark and --workers"),
    ],
)
def test_options_that_do_not_apply_to_standard_input_are_refused_with_exit_code_2(
    server: LogHubServer, capsys: pytest.CaptureFixture[str], extra: list[str], said: str
) -> None:
    """Options that do not apply to standard input are refused with exit code 2."""
    assert cli.run(parse_ship([*extra, *ship_arguments(server, "-")])) == 2
    assert said in " ".join(capsys.readouterr().err.split())
