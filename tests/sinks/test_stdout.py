"""StdoutSink: the printed lines, and the outcome when printing fails."""

import io
import json
import os
import subprocess
import sys

import pytest

from producer import NetworkError, Producer
from producer.model.errors import MisconfiguredError, UnreachableError
from producer.model.interfaces import Delivery
from producer.model.records import StreamKey
from producer.sinks import StdoutSink
from tests.support.pipelines import config, record
from tests.support.waiting import PATIENCE, Call

KEY = StreamKey("p", "l", "", "")


def deliver(sink: StdoutSink, text: str = "x") -> None:
    sink.write(Delivery(KEY, None, sink.encode(KEY, None, [record(text)])))


def test_records_are_printed_in_utf_8_one_object_a_line_to_the_current_sys_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Records are printed in UTF-8, one object a line, to the current ``sys.stdout``."""
    with Producer(sink=StdoutSink(), config=config(linger_ms=100)) as producer:
        assert producer.send("p", "l", {"m": "grüße"}).result(PATIENCE).successful
        (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) | {"__time__": 0, "__time_ns_part__": 0} == {
        "__time__": 0,
        "__time_ns_part__": 0,
        "__project__": "p",
        "__logstore__": "l",
        "__source__": "here",
        "m": "grüße",
    }


def test_batches_of_several_threads_do_not_mix() -> None:
    """On a text stream, such as a notebook's, every line is whole."""
    stream = io.StringIO()
    sink = StdoutSink(stream)
    for call in [Call(lambda: [deliver(sink, "x" * 5000) for _ in range(50)]) for _ in range(4)]:
        call.result()
    assert {json.loads(line)["m"] for line in stream.getvalue().splitlines()} == {"x" * 5000}
    assert stream.getvalue().count("\n") == 200


def test_a_full_disk_behind_it_leaves_the_batch_in_doubt() -> None:
    """After a failed write the batch may have been printed in part."""
    stream = open("/dev/full", "w")  # noqa: PTH123, SIM115
    with pytest.raises(NetworkError, match="No space left on device") as raised:
        deliver(StdoutSink(stream))
    assert raised.value.may_have_been_stored
    assert not isinstance(raised.value, UnreachableError)
    with pytest.raises(OSError, match="No space left"):
        stream.close()


def test_a_reader_that_has_gone_leaves_the_batch_in_doubt() -> None:
    """A closed pipe leaves the batch unconfirmed."""
    read, write = os.pipe()
    os.close(read)
    stream = open(write, "w")  # noqa: PTH123, SIM115
    with pytest.raises(NetworkError, match="Broken pipe") as raised:
        deliver(StdoutSink(stream))
    assert raised.value.may_have_been_stored
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_closed_output_got_nothing() -> None:
    """A closed standard output fails the batch permanently."""
    stream = io.StringIO()
    stream.close()
    with pytest.raises(MisconfiguredError, match="closed") as raised:
        deliver(StdoutSink(stream))
    assert not raised.value.may_have_been_stored


def test_parent_and_child_print_lines_in_utf_8_also_in_an_ascii_locale() -> None:
    """Parent and child print lines in UTF-8, also in an ASCII locale."""
    program = (
        "import os, sys\n"
        "from producer import Producer, ProducerConfig\n"
        "from producer.sinks import StdoutSink\n"
        "with Producer(sink=StdoutSink(), config=ProducerConfig(linger_ms=100)) as producer:\n"
        "    producer.send('p', 'l', {'m': 'grüße'}).result(30)\n"
        "    child = os.fork()\n"
        "    producer.send('p', 'l', {'m': 'grüße'}).result(30)\n"
        "    if child == 0:\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
    )
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, timeout=60, check=True)
    assert [json.loads(line)["m"] for line in out.stdout.decode().splitlines()] == ["grüße"] * 3
