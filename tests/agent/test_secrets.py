"""Secrets of the configuration are shown nowhere."""

import dataclasses
import logging
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from producer.agent import AgentConfigError
from producer.agent.config.options import read_options
from producer.agent.config.registry import BUILT_IN, class_of
from producer.agent.events.counters import Counters
from producer.agent.run.supervisor import Supervised
from producer.agent.sinks.http import HttpSink
from producer.agent.sinks.objects import ObjectsSink
from producer.model.options import options_of
from producer.runtime.clock import Stop
from producer.testing import ManualClock

from ..support.waiting import eventually
from .components import made
from .monitored import Monitored

_SECRET = "hunter2"
_CONFIG = f"""
[agent]
state = "{{state}}"
[sources.r1]
type = "sequence"
channels = ["c1"]
[channels.c1]
type = "memory"
capacity = 100
[sinks.k1]
type = "http"
endpoint = "http://127.0.0.1:9/in"
proxy = "http://me:{_SECRET}@127.0.0.1:9"
token = "{_SECRET}"
channel = "c1"
"""


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in BUILT_IN.items() for name in names])
def test_no_option_that_is_secret_is_in_the_repr_of_options(kind: str, name: str) -> None:
    """No repr of any component's options has a secret."""
    pytest.importorskip("confluent_kafka") if name == "kafka" else None
    options = class_of(kind, name).Options
    for field in dataclasses.fields(options):
        assert field.repr is not options_of(options)[field.name].secret, field.name


def _texts_for(hint: Any, text: str) -> Any:
    """Return a text in the form that an option takes; None for numbers and booleans."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return [text]
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return {"k": text}
    return text if {str, Path} & {hint, *arguments} else None


@pytest.mark.parametrize("text", [f"ftp://me:{_SECRET}@h/in", f"ftp://me:a/b@'{_SECRET}@h/in", f"ftp://{_SECRET}@h"])
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in BUILT_IN.items() for name in names])
def test_no_error_or_repr_of_any_option_shows_users_and_passwords_of_urls_or_a_secrets_value(
    kind: str, name: str, text: str
) -> None:
    """No error or repr of any option shows users and passwords of URLs, or a secret's value."""
    pytest.importorskip("confluent_kafka") if name == "kafka" else None
    cls = class_of(kind, name).Options
    fields, hints = options_of(cls), typing.get_type_hints(cls)
    filled = {key: _texts_for(hints[key], text) for key in fields}
    needed = {key: filled[key] or 1 for key, field in fields.items() if field.default is ...}
    for key, field in fields.items():
        more: list[Any] = [_SECRET, [_SECRET], {_SECRET: [_SECRET]}] if field.secret else []
        for value in [filled[key] or text, *more]:
            try:
                told = repr(read_options(cls, {**needed, key: value}, f"{kind}.k1"))
            except AgentConfigError as error:
                told = f"{error} {error.problems!r}"
            assert _SECRET not in told, key


def test_a_component_that_fails_shows_no_password_of_an_address(caplog: pytest.LogCaptureFixture) -> None:
    """A failed component shows no password of a URL, in the log, its traceback or the figures."""
    counters, clock = Counters(), ManualClock()

    def run(_stop: Stop) -> None:
        try:
            raise KeyError(f"http://me:{_SECRET}@h/")
        except KeyError as error:
            raise ValueError(f"no answer of http://me:{_SECRET}@h/") from error

    part = Supervised("source", "r1", run, counters, clock)
    part.start()
    eventually(lambda: "no answer" in caplog.text)
    part.stop()
    assert _SECRET not in caplog.text + str(counters.last_error)
    assert caplog.text.count("KeyError: 'http://***@h/'") == 1


def test_a_proxys_password_is_in_neither_repr_nor_str() -> None:
    """Repr and str of a sink's options hide the proxy's password only."""
    options = HttpSink.Options(endpoint="http://h/", proxy=f"http://me:{_SECRET}@p:1", headers={"a": _SECRET})
    assert _SECRET not in f"{options!r} {options} {[options]}"
    assert "endpoint='http://h/'" in repr(options)


@pytest.mark.parametrize(
    ("kind", "name", "wrong"),
    [
        ("sinks", "http", {"endpoint": f"ftp://me:{_SECRET}@h/in"}),
        ("sinks", "http", {"endpoint": f"http://me:{_SECRET}@h/in"}),
        ("sinks", "http", {"endpoint": "http://h/", "proxy": f"smb://me:{_SECRET}@h"}),
        ("sinks", "objects", {"path": f"nothing://me:{_SECRET}@h/dir"}),
        ("sources", "netcat", {"bind": f"tcp://me:{_SECRET}@h"}),
    ],
)
def test_a_problem_shows_no_password_of_a_url(kind: str, name: str, wrong: dict[str, str]) -> None:
    """A problem shows no password of a URL, whatever else is wrong with the value."""
    with pytest.raises(AgentConfigError) as error:
        read_options(class_of(kind, name).Options, wrong, f"{kind}.k1")
    assert _SECRET not in f"{error.value} {error.value.problems!r}"


def test_a_store_that_fails_shows_no_password_of_its_address(tmp_path: Path) -> None:
    """A failed object store shows no password, however long its library's message."""
    sink: Any = made("sinks", "objects", tmp_path, path=f"{tmp_path}/a")
    assert isinstance(sink, ObjectsSink)
    said = sink._description(ValueError(f"no answer of ftp://me:{_SECRET}@host:21/dir"))
    assert said == "ValueError: no answer of ftp://***@host:21/dir"


def test_a_running_agent_tells_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent's log, figures and page show no secret while a sink fails behind a proxy."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(Monitored, "patience", 0.1)
    with Monitored(tmp_path, config=_CONFIG) as watched:
        eventually(lambda: "k1" in caplog.text and "proxy" in caplog.text.lower())
        paths = ("/", "/metrics", "/metrics.json", "/status.json", "/health/ready")
        pages = "".join(watched.get(path)[2] for path in paths)
    assert "k1" in pages
    assert _SECRET not in caplog.text + pages
