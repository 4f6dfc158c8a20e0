"""The conformance tests hold for the documentation's components and the built-in ones."""

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from producer.agent.config.registry import BUILT_IN, class_of
from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Context, Interceptor, Outlet, Routes, Selector, Sink, Source
from producer.agent.flow.channel import BatchChannel
from producer.agent.sinks.loghub import LogHubSink
from producer.agent.testing import (
    InterceptorConformance,
    RecordingOutlet,
    SelectorConformance,
    SinkConformance,
    SourceConformance,
)
from producer.model.errors import ChannelFullError
from producer.model.options import option
from producer.runtime.clock import Stop
from producer.server import LogHubServer
from producer.server.faults import answer

_PAGE = Path(__file__).parents[2] / "docs" / "agent" / "plugins.md"


def _of_the_page() -> dict[str, Any]:
    """Return the components that the documentation shows."""
    page = sys.modules["page_of_components"] = ModuleType("page_of_components")  # dataclasses look the module up there
    names = page.__dict__
    for block in re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)[:-1]:
        exec(block, names)
    return names


_COMPONENTS = _of_the_page()


class TestShout(InterceptorConformance):
    """The documentation's interceptor conforms."""

    def make(self) -> Interceptor:
        return _COMPONENTS["Shout"](_COMPONENTS["Shout"].Options(), self.context)


class TestAppend(SinkConformance):
    def make(self) -> Sink:
        self.path = self.context.state.with_name("out.log")
        return _COMPONENTS["AppendSink"](_COMPONENTS["AppendSink"].Options(path=self.path), self.context)

    def delivered(self) -> list[bytes]:
        return self.path.read_bytes().splitlines()


class TestSize(SelectorConformance):
    wrong_options = ({"most": "many"},)

    def make(self, channels: Mapping[str, BatchChannel]) -> Selector:
        made: Selector = _COMPONENTS["SizeSelector"](_COMPONENTS["SizeSelector"].Options(), self.context, channels)
        return made


class TestLogHub(SinkConformance):
    """The LogHub sink conforms, with a server that fails."""

    @pytest.fixture(autouse=True)
    def _served(self) -> Any:
        with LogHubServer() as self.server:
            yield

    def make(self) -> Sink:
        options = LogHubSink.Options(
            project="p",
            logstore="l",
            endpoint=self.server.endpoint,
            access_key_id=self.server.access_key_id,
            access_key_secret=self.server.access_key_secret,
            retries=0,
            lanes=1,
        )
        return LogHubSink(options, self.context)

    def delivered(self) -> list[bytes]:
        try:
            return [dict(log.contents)["content"].encode() for log in self.server.logs("p", "l")]
        except LookupError:
            return []

    def break_destination(self) -> Callable[[], None]:
        fault = self.server.faults.add(answer(500, "InternalServerError"), operation="PutLogs")
        return lambda: self.server.faults.remove(fault)


_OPTIONS: dict[str, dict[str, Any]] = {
    "kubernetes": {"node": "n", "api": "https://127.0.0.1:1", "token_file": Path("absent")},
    "parse": {"format": "logfmt"},
    "python": {"function": "tests.agent.test_conformance:same"},
    "rate_limit": {"events_per_second": 1e6},
    "redact": {"kinds": ("email",)},
    "regex_extractor": {"regex": "(t)", "headers": ("t",)},
    "regex_filter": {"regex": "o"},
    "remove_header": {"with_name": "n"},
    "sample": {"share": 1.0},
    "search_replace": {"search_pattern": "o", "replace_string": "0"},
}


def same(batch: EventBatch) -> EventBatch:
    return batch


@pytest.mark.parametrize("kind", sorted(BUILT_IN["interceptors"]))
@pytest.mark.parametrize("name", [name for name in dir(InterceptorConformance) if name.startswith("test_")])
def test_every_built_in_interceptor_keeps_it(kind: str, name: str, tmp_path: Path) -> None:
    """Each built-in interceptor passes the tests that plugins inherit."""

    class Built(InterceptorConformance):
        def make(self) -> Interceptor:
            cls = class_of("interceptors", kind)
            made: Interceptor = cls(cls.Options(**_OPTIONS.get(kind, {})), self.context)
            closing.callback(getattr(made, "close", bool))
            return made

    built = Built()
    built.setup_method()
    with ExitStack() as closing:
        getattr(built, name)(tmp_path)


_SELECTED: dict[str, dict[str, Any]] = {
    "multiplexing": {"header": "n", "mapping": {"1": ("one", "two")}, "optional": {"2": ("three",)}},
    "replicating": {"optional": ("two",)},
}


@pytest.mark.parametrize("kind", sorted(BUILT_IN["selectors"]))
@pytest.mark.parametrize("name", [name for name in dir(SelectorConformance) if name.startswith("test_")])
def test_every_built_in_selector_keeps_it(kind: str, name: str, tmp_path: Path) -> None:
    """Each built-in selector passes the tests that plugins inherit."""

    class Built(SelectorConformance):
        def make(self, channels: Mapping[str, BatchChannel]) -> Selector:
            cls = class_of("selectors", kind)
            made: Selector = cls(cls.Options(**_SELECTED.get(kind, {})), self.context, channels)
            return made

    built = Built()
    built.setup_method()
    getattr(built, name)(tmp_path)


class _Forgetful:
    """A selector that drops every second event, accepts any option, and names an unknown channel."""

    exclusive = True

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        most: int = option(1, doc="nothing that anybody asks for")

    def select(self, batch: EventBatch) -> Routes:
        kept = batch.select([number % 2 == 0 for number in range(batch.count)])
        return Routes({"four": EventBatch.of_bodies(kept.bodies())})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("test_every_event_has_a_channel_or_is_counted", "has no channel and is not counted"),
        ("test_channels_are_those_of_the_source", "channels that the source does not have"),
        ("test_the_position_is_kept", "the position changed"),
        ("test_wrong_options_are_refused", "was not reported"),
    ],
)
def test_a_selector_that_breaks_a_rule_is_found(name: str, said: str, tmp_path: Path) -> None:
    """A faulty selector fails the test named after its fault."""

    class Broken(SelectorConformance):
        wrong_options = ({"most": 0},)

        def make(self, channels: Mapping[str, BatchChannel]) -> Selector:
            return _Forgetful()

    broken = Broken()
    broken.setup_method()
    with pytest.raises(AssertionError, match=said):
        getattr(broken, name)(tmp_path)


class _Pushed(SourceConformance):
    """A source of events given by a test, which counts acknowledgements."""

    resumes = True
    acknowledges_early = False
    drops = False

    def setup_method(self) -> None:
        super().setup_method()
        self._given: list[bytes] = []
        self._done = 0

    def make(self) -> Source:
        test = self

        class Pushed:
            def run(self, outlet: Outlet, stop: Stop) -> None:
                while not stop.wait(0.002):
                    if test._done < len(test._given):
                        test._work(outlet, stop)

        return Pushed()

    def _work(self, outlet: Outlet, stop: Stop) -> None:
        batch = EventBatch.of_bodies([self._given[self._done]])
        if self.acknowledges_early:
            self._done += 1
        if self.drops:
            try:
                outlet.put(batch, 0.01)
            except ChannelFullError:
                self._done += 1
                return
        elif not outlet.put_until(batch, stop):
            return
        if not self.acknowledges_early:
            self._done += 1

    def feed(self, number: int) -> bytes:
        self._given.append(b"%d" % number)
        return self._given[-1]

    def acknowledged(self) -> int:
        return self._done


class TestPushed(_Pushed):
    """A correct source conforms."""


@pytest.mark.parametrize(
    ("flaw", "test", "message"),
    [
        ("acknowledges_early", "test_nothing_is_acknowledged_before_it_is_committed", "before the commit"),
        ("drops", "test_a_full_channel_loses_no_event", "did not come"),
    ],
)
def test_a_source_that_breaks_a_rule_is_found(
    flaw: str, test: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A faulty source fails the inherited test for its fault."""
    monkeypatch.setattr("producer.agent.testing.PATIENCE", 0.5)
    flawed = type("Flawed", (_Pushed,), {flaw: True})()
    flawed.setup_method()
    with pytest.raises(AssertionError, match=message):
        getattr(flawed, test)(tmp_path)


class _Loose:
    most_events = most_bytes = 1000

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self.bodies: list[bytes] = []
        self.broken = False

    def write(self, batches: Any) -> None:
        if self.broken and not self._silent:
            raise OSError("down")
        if not self.broken:
            self.bodies += [body for batch in batches for body in batch.bodies()]

    def close(self) -> None:
        """Nothing to do."""


def test_a_sink_that_hides_a_failure_is_found(tmp_path: Path) -> None:
    """A sink that hides a failure fails the conformance test; one that raises passes."""
    for silent in (False, True):

        class Checked(SinkConformance):
            sink = _Loose(silent=silent)

            def make(self) -> Sink:
                return self.sink

            def delivered(self) -> list[bytes]:
                return self.sink.bodies

            def break_destination(self) -> Callable[[], None]:
                self.sink.broken = True
                return lambda: setattr(self.sink, "broken", False)

        checked = Checked()
        checked.setup_method()
        if silent:
            with pytest.raises(AssertionError, match="write returned though"):
                checked.test_a_failure_raises_and_can_be_retried(tmp_path)
        else:
            checked.test_a_failure_raises_and_can_be_retried(tmp_path)


def test_the_selector_of_the_documentation_chooses_by_size(tmp_path: Path) -> None:
    """The documentation's selector chooses by size, and its source ends when asked."""
    context = Context("a", "s", tmp_path)
    cls = _COMPONENTS["SizeSelector"]
    selector = cls(cls.Options(most=1), context, {"small": None, "large": None})
    assert list(selector.select(EventBatch.of_lines(b"a\n")).required) == ["small"]
    assert list(selector.select(EventBatch.of_lines(b"a\nb\n")).required) == ["large"]
    source, outlet, stop = _COMPONENTS["ClockSource"], RecordingOutlet(), Stop()
    outlet.put_until = lambda *_: stop.set()  # type: ignore[assignment,method-assign]
    source(source.Options(every=0.001), context).run(outlet, stop)
