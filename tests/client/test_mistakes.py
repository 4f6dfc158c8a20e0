"""Plausible mistakes get an error that says what was meant."""

import ast
import importlib
import io
import math
import re
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import producer as producer_package
from producer import (
    ConfigError,
    EnvironmentCredentials,
    FileChannel,
    HttpConfig,
    InvalidArgumentError,
    LogItem,
    MemoryChannel,
    Producer,
    ProducerConfig,
    ProducerError,
    ProjectConfig,
    Stream,
)
from producer.cli import main
from producer.model.config import producer_options
from producer.model.futures import SendFuture
from producer.testing import LogHubServer, ManualClock, RecordingSink
from producer.text.migration_hints import FOREIGN, FOREIGN_OF_PROJECT

KEY: dict[str, Any] = {"access_key_id": "id", "access_key_secret": "s3cret"}
HANGZHOU = "https://cn-hangzhou.log.aliyuncs.com"


def project(endpoint: str = HANGZHOU, name: str = "shop", **options: Any) -> ProjectConfig:
    return ProjectConfig(name, endpoint=endpoint, **(options or KEY))


def sent(log: Any, **where: Any) -> None:
    with Producer(project(), sink=None if where.pop("known", False) else RecordingSink()) as producer:
        producer.send(where.pop("project", "shop"), where.pop("logstore", "app-log"), log, **where)


def called(method: str, *arguments: Any) -> Any:
    with Producer(project(), sink=RecordingSink()) as producer:
        return getattr(producer, method)(*arguments)


def bound(method: str, *arguments: Any) -> Any:
    with Producer(project(), sink=RecordingSink()) as producer:
        return getattr(producer.stream("shop", "app-log"), method)(*arguments)


def waited(timeout: Any) -> None:
    with Producer(project(), sink=RecordingSink()) as producer:
        producer.send("shop", "app-log", {}).result(timeout)


def options(**names: Any) -> Callable[[], object]:
    return lambda: ProducerConfig(**names)


def mapping(**names: Any) -> Callable[[], object]:
    return lambda: ProducerConfig.from_mapping({name.replace("__", "."): value for name, value in names.items()})


MISTAKES: list[tuple[str, Callable[[], object], str]] = [
    # Destinations.
    ("endpoint with the project", lambda: project("https://shop.cn-hangzhou.log.aliyuncs.com"), f"write {HANGZHOU}"),
    ("endpoint with another project", lambda: project("other.cn-hangzhou.log.aliyuncs.com"), "'other' is another one"),
    (
        "positional arguments",
        lambda: ProjectConfig("shop", HANGZHOU, "id", "s3cret"),  # type: ignore[misc]
        "takes the project, and all else by name: ProjectConfig(project, endpoint=..., access_key_id=..., ...)",
    ),
    (
        "a connection by its place",
        lambda: ProjectConfig("shop", {"endpoint": HANGZHOU, **KEY}),  # type: ignore[misc]
        "all else by name: ProjectConfig(project, **connection)",
    ),
    ("sign_version of a project", lambda: project(sign_version="v4", **KEY), "config=ProducerConfig(sign_version=..."),
    ("linger of a project", lambda: project(linger_ms=1, **KEY), "config=ProducerConfig(linger_ms=...)"),
    ("no endpoint", lambda: ProjectConfig("shop", **KEY), "endpoint: must be given, such as"),  # type: ignore[call-arg]
    ("key id without secret", lambda: project(access_key_id="id"), "access_key_secret: is missing"),
    ("secret without key id", lambda: project(access_key_secret="s3cret"), "access_key_id: is missing"),
    ("access_key", lambda: project(access_key="s3cret"), "it is called access_key_secret here"),
    ("end_point", lambda: ProjectConfig("shop", end_point="x"), "it is called endpoint here"),  # type: ignore[call-arg]
    ("logstore of a project", lambda: project(logstore="l", **KEY), "pass it to send"),
    # Options.
    ("positional options", lambda: ProducerConfig(100), "takes options by name"),  # type: ignore[misc]
    ("positional options of http", lambda: HttpConfig(100), "takes options by name"),  # type: ignore[misc]
    (
        "http_verify",
        options(http_verify=False),
        "it is verify of HttpConfig: ProducerConfig(http=HttpConfig(ver",
    ),
    ("verify", options(verify=False), "it is verify of HttpConfig"),
    ("batch_size", options(batch_size=1), "batch_size_threshold_in_bytes (bytes) and batch_count_threshold (logs)"),
    ("maxBlockMs", options(maxBlockMs=1), "it is written max_block_ms"),
    ("bootstrap.servers", mapping(bootstrap__servers="h:1"), "it is an option of ProjectConfig: endpoint="),
    ("linger.ms", mapping(linger__ms=5), "it is written linger_ms"),
    ("queue.buffering.max.ms", mapping(queue__buffering__max__ms=5), "it is called linger_ms here"),
    ("compression.type", mapping(compression__type="lz4"), "it is called compression here"),
    ("acks", options(acks="all"), "only when the server has acknowledged it"),
    ("enable.idempotence", mapping(enable__idempotence=True), "producer.stream(..., idempotent=True)"),
    ("linger", options(linger=2.0), "it is called linger_ms here"),
    ("put_wait", options(put_wait=2), "it is called max_block_ms here"),
    ("a typo", options(lingr_ms=2), "did you mean linger_ms?"),
    ("options of the producer", lambda: Producer(linger=5), "config=ProducerConfig(...): it is called linger_ms"),  # type: ignore[call-arg]
    ("confluent's dict", lambda: Producer({"linger.ms": 5}), "ProducerConfig.from_mapping"),  # type: ignore[arg-type]
    ("config by its place", lambda: Producer(ProducerConfig()), "config=ProducerConfig"),  # type: ignore[arg-type]
    ("as written", lambda: Producer(linger_ms=5), "say config=ProducerConfig(linger_ms=...)"),  # type: ignore[call-arg]
    ("endpoint of the producer", lambda: Producer("p", endpoint="x"), "it is an option of ProjectConfig"),  # type: ignore[call-arg, arg-type]
    ("channel by its place", lambda: Producer(MemoryChannel()), "Producer(project, channel=...)"),  # type: ignore[arg-type]
    ("no name of a project", lambda: project(name="my_shop"), "must be lower-case letters, digits and dashes"),
    ("capitals in a project", lambda: project(name="Shop"), "must be lower-case letters, digits and dashes"),
    (
        "no key",
        lambda: ProjectConfig("shop", endpoint=HANGZHOU),
        "credentials, such as 'environment', which reads LOGHUB_",
    ),
    (
        "a class of providers",
        lambda: project(credentials=EnvironmentCredentials),
        "EnvironmentCredentials(), an object",
    ),
    ("a name for a project", lambda: Producer("shop"), "must be a ProjectConfig, got str"),  # type: ignore[arg-type]
    # Logs.
    ("topic by its place", lambda: called("send", "shop", "app-log", {}, "web"), "topic=...: got 'web' as well"),
    (
        "logstore of a stream",
        lambda: bound("send", "shop", "app-log", {}),
        "knows its logstore shop/app-log: send takes",
    ),
    ("callback by its place", lambda: bound("send_many", [], print), "callback=...: got <built-in"),
    ("topic of a stream", lambda: called("stream", "shop", "app-log", "web"), "topic=...: got 'web' as well"),
    ("text for lines", lambda: bound("send_lines", "a"), "got str: text.encode() makes bytes of it"),
    ("an open file for lines", lambda: bound("send_lines", io.StringIO("a")), "read() gives the bytes of a file"),
    (
        "one log for many",
        lambda: bound("send_many", {"n": 1}),
        "send_many takes a list of logs or an iterator, got dict",
    ),
    ("text for a log", lambda: sent("hello"), "got str; use a mapping such as {'message': ...}"),
    (
        "a switch for fsync",
        lambda: FileChannel("never-made", fsync=True),
        'must be "commit", "os" or a number of seconds, at',
    ),
    ("text for a timeout", lambda: waited("5"), "timeout: must be None or seconds"),
    ("malformed logstore", lambda: sent({}, logstore="App_Log"), "logstore: must be lower-case letters"),
    ("unknown project", lambda: sent({}, project="shpo", known=True), "(did you mean 'shop'?)"),
    ("milliseconds", lambda: sent(LogItem({}, 1_700_000_000_000)), "this looks like milliseconds: divide by 1000)"),
    ("float milliseconds", lambda: sent(LogItem({}, 1_700_000_000_000.5)), "this looks like milliseconds"),
    ("microseconds", lambda: sent(LogItem({}, 1_700_000_000_000_000)), "this looks like microseconds"),
    ("nanoseconds", lambda: sent(LogItem({}, time.time_ns())), "this looks like nanoseconds: divide by 1000000000"),
    ("no time", lambda: sent(LogItem({}, math.nan)), "time: must be a number of seconds since 1970"),
    ("a naive datetime", lambda: sent(LogItem({}, datetime(2026, 1, 2))), "needs a time zone, such as"),
    ("text for a time", lambda: sent(LogItem({}, "now")), "(or a datetime with a time zone), got 'now'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("mistake", "sentence"), [one[1:] for one in MISTAKES], ids=[one[0] for one in MISTAKES])
def test_the_error_is_one_of_the_package_says_what_is_wrong_or_what_was_meant_and_shows_no_secret(
    mistake: Callable[[], object], sentence: str
) -> None:
    """The error is one of the package, says what is wrong or what was meant, and shows no secret."""
    with pytest.raises(ProducerError) as caught:
        mistake()
    assert sentence in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("send_many", "producer.stream(project, logstore).send_many(...)"),
        ("send_and_wait", "producer.stream(project, logstore).send_and_wait(...)"),
        ("put_logs", "it is called send here"),
        ("shutdown", "it is called close here"),
        ("poll", "no call is needed"),
        ("sned", "'Producer' object has no attribute 'sned'; did you mean send?"),
    ],
)
def test_the_error_names_the_right_method_python_suggests_no_private_name(name: str, sentence: str) -> None:
    """The error names the right method; Python suggests no private name."""
    with Producer(sink=RecordingSink()) as producer, pytest.raises(AttributeError) as caught:
        getattr(producer, name)
    assert sentence in str(caught.value)
    assert "Did you mean" not in "".join(traceback.format_exception_only(caught.value))


@pytest.mark.parametrize("way", ["compiled", "pure"])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("get", "result(timeout) waits for the outcome, or raises"),
        ("add_callback", "add_done_callback(fn) calls fn(future), callback= of send calls fn(result)"),
        ("add_errback", "whose exception() is None where it was delivered"),
        ("is_done", "it is called done here"),
        ("reslt", "'SendFuture' object has no attribute 'reslt'; did you mean result?"),
        ("_nothing", "'SendFuture' object has no attribute '_nothing'"),
    ],
)
def test_both_implementations_of_a_future_name_the_right_method(way: str, name: str, sentence: str) -> None:
    """Both implementations of a future name the right method; an unknown name stays an AttributeError."""
    with Producer(project(), sink=RecordingSink()) as producer:
        stream = producer.stream("shop", "app-log")
        stream.send({})
        sent = stream.send({})
        future = SendFuture(sent._holder, 0) if way == "pure" else sent
        with pytest.raises(AttributeError) as caught:
            getattr(future, name)
    assert str(caught.value).endswith(sentence)
    assert caught.value.name == name
    assert "Did you mean" not in "".join(traceback.format_exception_only(caught.value))


def test_the_tags_of_one_send_are_added_to_those_of_the_configuration() -> None:
    """The tags of one send are added to those of the configuration, as the tags of a stream are."""
    with Producer(project(), sink=(sink := RecordingSink()), config=ProducerConfig(log_tags={"a": "b"})) as producer:
        producer.send("shop", "app-log", {}, tags={"c": "d"}).result(30)
    assert sink.deliveries[0].key.tags == (("a", "b"), ("c", "d"))


@pytest.mark.parametrize("tags", [["a"], "env=prod", 5, [("a", "b")]])
def test_send_and_stream_refuse_tags_that_are_not_a_mapping_naming_the_argument_and_its_type(tags: Any) -> None:
    """``send`` and ``stream`` refuse tags that are not a mapping, naming the argument and its type."""
    with Producer(sink=RecordingSink()) as producer:
        for call in (partial(producer.send, "shop", "l", {}), partial(producer.stream, "shop", "l")):
            with pytest.raises(InvalidArgumentError, match=r"^tags: must be None or a mapping of text to text"):
                call(tags=tags)


@pytest.mark.parametrize("logs", [5, None, object()])
def test_the_error_is_not_pythons_own_about_something_that_is_not_iterable(logs: Any) -> None:
    """The error is not Python's own about something that is not iterable."""
    with Producer(sink=RecordingSink()) as producer, pytest.raises(InvalidArgumentError, match="takes a list of logs"):
        producer.stream("shop", "l").send_many(logs)


def test_no_message_sends_to_a_file_that_an_installed_package_does_not_have() -> None:
    """The documents are not installed, so no message names one of their files."""
    found = [
        f"{path}:{node.lineno}"
        for path in Path(producer_package.__file__).parent.rglob("*.py")
        for node in _texts(ast.parse(path.read_text()))
        if "docs/" in node.value
    ]
    assert not found


def _texts(tree: ast.AST) -> Iterator[Any]:
    """Return the texts in a module except its docstrings."""
    own = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in own:
            yield node


def test_the_first_argument_of_the_embedded_loghub_is_its_host() -> None:
    """The first argument of the embedded LogHub is its host; a port there gets an error that names the option."""
    with pytest.raises(ValueError, match=re.escape("LogHubServer(port=9170)")):
        LogHubServer(9170)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("LogHubServer", "from loghub.testing import LogHubServer"),
        ("LogHubHandler", "from loghub.integrations.logging import LogHubHandler"),
        ("LogClient", "it is Producer here: Producer(ProjectConfig("),
        ("LogProducer", "it is Producer here"),
    ],
)
def test_a_foreign_name_gets_a_hint_under_each_name_of_the_package(name: str, sentence: str) -> None:
    """A foreign name gets a hint under each name of the package; an unknown name keeps Python's own error."""
    for package in ("loghub", "producer"):
        with pytest.raises(ImportError) as caught:
            exec(f"from {package} import {name}", {})
        assert sentence in str(caught.value)
    assert not hasattr(importlib.import_module("producer"), "Nothing")


def test_each_suggested_option_exists_and_no_known_option_is_in_the_table_of_foreign_names() -> None:
    """Each suggested option exists, and no known option is in the table of foreign names."""
    known = {*producer_options(), "name", "stats_interval_ms"}
    assert {meant for meant in FOREIGN.values() if " " not in meant} <= known
    assert not set(FOREIGN) & known
    assert {meant for meant in FOREIGN_OF_PROJECT.values() if " " not in meant} <= {
        "endpoint", "access_key_id", "access_key_secret", "security_token", "credentials", "project"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "flag", "nearest"),
    [
        (["ship", "--topik", "x", "a.log"], "--topik", "--topic"),
        (["ship", "--projct=b", "a.log"], "--projct", "--project"),
        (["channel", "inspect", "--outptu", "/x"], "--outptu", "--output"),
        (["channel", "verify", "--json", "/x"], "--json", "--output"),
        (["serve", "--prot", "5"], "--prot", "--port"),
    ],
)
def test_an_unknown_flag_is_named_with_its_nearest(
    capsys: pytest.CaptureFixture[str], arguments: list[str], flag: str, nearest: str
) -> None:
    """An unknown flag is reported before missing arguments, with the exit code of wrong usage."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert f"unknown flag {flag}: did you mean {nearest}?" in capsys.readouterr().err


def test_a_float_is_a_time_to_the_microsecond() -> None:
    """A float from time.time() keeps its microseconds; so do numpy's numbers."""
    from producer.wire.text import time_of

    assert time_of(LogItem({}, 1_700_000_000.25), 0) == (1_700_000_000, 250_000_000)
    assert time_of(LogItem({}, 0.9999999), 0) == (1, 0)
    assert time_of(LogItem({}, 5.5, time_ns=7), 0) == (5, 7)
    assert time_of(LogItem({}, 5), 0) == (5, 0)


def test_a_message_names_the_argument_stays_short() -> None:
    """A message names the argument, stays short, and does not fail because the value cannot be printed."""

    class Odd:
        def __repr__(self) -> str:
            raise LookupError

    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    with Producer(sink=RecordingSink()) as producer:
        stream = producer.stream("p", "l-1")
        for value in (Odd(), deep, 10**5000, {"a": Odd()}, ["x" * 10_000]):
            calls: list[Callable[[Any], object]] = [
                lambda it: producer.send("p", "l-1", {}, topic=it),
                lambda it: producer.send("p", "l-1", {}, callback=it),
                lambda it: producer.send("p", it, {}),
                lambda it: stream.send_lines(b"x\n", key=it),
                lambda it: ProducerConfig(linger_ms=[it]),
            ]
            for call in calls:
                with pytest.raises((InvalidArgumentError, ConfigError)) as raised:
                    call(value)
                assert len(str(raised.value)) < 500


@pytest.mark.parametrize("clock", [-1000.5, 2.0**32])
@pytest.mark.parametrize(
    "send",
    [
        lambda stream: stream.send({"a": "b"}),
        lambda stream: stream.send(LogItem({"a": "b"})),
        lambda stream: stream.send_many([{"a": "b"}]),
        lambda stream: stream.send_lines(b"a\nb\n"),
        lambda stream: stream.send_arrow(pytest.importorskip("pyarrow").table({"a": ["b"]})),
    ],
    ids=["dict", "item", "many", "lines", "arrow"],
)
def test_an_impossible_system_clock_is_reported_like_an_impossible_time_of_a_log(
    clock: float, send: Callable[[Stream], object]
) -> None:
    """An impossible system clock is reported like an impossible time of a log: with the value and the range."""
    sink = RecordingSink()
    with Producer(sink=sink, clock=ManualClock(clock)) as sender:
        with pytest.raises(InvalidArgumentError, match=rf"system clock .* 0 to 4294967295 .* at {clock}: set it"):
            send(sender.stream("my-project", "app-log"))
        assert sender.stats().accepted == 0
