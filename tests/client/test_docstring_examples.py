"""The examples in the docstrings of the public classes."""

import doctest
import inspect
import signal

import pytest

import producer as package
from producer import FileSink, Producer, Result, SendFuture, Sink, StdoutSink, Stream
from producer.client import at_exit
from producer.runtime.signals import STOP_SIGNALS, StopSignals
from producer.testing import RecordingSink

FUNCTIONS = [package.install_signal_handlers, package.flush_all]
PUBLIC = [Producer, Stream, SendFuture, Result, Sink, FileSink, StdoutSink, RecordingSink, *FUNCTIONS]
FOUND = [
    test
    for each in PUBLIC
    for test in doctest.DocTestFinder(exclude_empty=False).find(each, each.__qualname__)
    if test.examples
]


@pytest.mark.parametrize("example", FOUND, ids=[test.name for test in FOUND])
def test_an_example_runs(example: doctest.DocTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples run as they stand, with a producer and one of its streams."""
    monkeypatch.setattr(at_exit, "_stop_signals", StopSignals(lambda _number: None))
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    printed: list[str] = []
    with Producer(sink=RecordingSink()) as producer:
        example.globs = {
            "Producer": Producer,
            "RecordingSink": RecordingSink,
            "producer": producer,
            "stream": producer.stream("my-project", "app-log"),
        }
        result = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(
            example, out=printed.append, clear_globs=False
        )
    for number, handler in before.items():
        signal.signal(number, handler)
    assert result.failed == 0, "".join(printed)


@pytest.mark.parametrize("public", [Producer, Stream, SendFuture], ids=["Producer", "Stream", "SendFuture"])
def test_each_method_for_users_has_an_example(public: type) -> None:
    """A method that users call shows how to call it, and documents its parameters."""
    methods = [method for name, method in vars(public).items() if inspect.isfunction(method) and name[0] != "_"]
    plain = {"cancelled", "running"}  # always False
    for method in methods:
        text = inspect.getdoc(method) or ""
        parameters = set(inspect.signature(method).parameters) - {"self", "more"}
        assert ">>>" in text or method.__name__ in plain
        assert {name for name in parameters if f":param {name}:" not in text} == set()
