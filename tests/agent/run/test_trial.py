"""``producer agent test``: the path of sample input through a configuration, and the tests in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer.agent import EventBatch
from producer.agent.config import parse_toml
from producer.agent.config.options import AgentConfigError
from producer.agent.run.blueprint import Blueprint, draw
from producer.agent.run.trial import Passage, Trial, TrialError, failures_of

AGENT = """
[sources.in]
type = "{source}"
channels = ["q", "errors"]
{options}
[sources.in.selector]
type = "multiplexing"
header = "level"
mapping = {{ ERROR = ["errors"], INFO = ["q"] }}
[channels.q]
type = "file"
directory = "{place}/channel"
[channels.errors]
type = "memory"
[sinks.files]
type = "file_roll"
channel = "q"
directory = "{place}/files"
serializer = "json"
[sinks.log]
type = "loghub"
channel = "errors"
project = "p-project"
logstore = "logs"
headers = "fields"
endpoint = "http://127.0.0.1:1"
access_key_id = "a"
access_key_secret = "s3cret-key"
"""
TAIL = 'paths = ["/nowhere/*.log"]\n'
PARSE = """
[[sources.in.interceptors]]
type = "regex_filter"
regex = "^#"
exclude_events = true
[[sources.in.interceptors]]
type = "regex_extractor"
regex = '^(\\w+) (.*)$'
headers = ["level", "text"]
"""


JSON = '{"headers": {"level": "ERROR"}, "body": "ERROR d\u00fc"}'


def half(headers, body):
    """Fail for one body, as a user's function."""
    if body == b"bad":
        raise ValueError("no such day")
    return headers, body


def twice(batch):
    """Return each event twice, as a user's function."""
    return EventBatch.of_events([event for event in batch.events() for _ in range(2)])


def blueprint(tmp_path: Path, text: str = "", source: str = "taildir", options: str = TAIL + PARSE) -> Blueprint:
    config = AGENT.format(source=source, options=options, place=tmp_path / "state") + text
    return draw(parse_toml(config))


def passages(drawn: Blueprint, data: bytes, **headers: str) -> list[Passage]:
    with Trial(drawn) as trial:
        return list(trial.passages(trial.decoded(data, headers)))


def function(name: str) -> str:
    each = 'each = "event"' if name == "half" else ""
    return f'[[sources.in.interceptors]]\ntype = "python"\nfunction = "{__name__}:{name}"\n{each}'


def test_each_stage_is_shown_with_what_it_makes_of_an_event(tmp_path: Path) -> None:
    """Each event has its form after each interceptor, its channels, and the text that each sink would deliver; no
    directory of the configuration is made.
    """
    drawn = blueprint(tmp_path)
    with Trial(drawn) as trial:
        comment, error, other, info = trial.passages(trial.decoded(b"# c\nERROR disk\nother x\nINFO fine\n"))
        assert [outcome.dropped_by for outcome in comment.outcomes] == ["regex_filter"]
        assert [step.name for step in error.steps] == ["in", "regex_filter", "regex_extractor"]
        assert list(error.steps[-1].batch.headers()) == [{"level": "ERROR", "text": "disk"}]
        assert [outcome.dropped_by for outcome in other.outcomes] == ["the selector"]
        assert error.outcomes[0].channels == ("errors",)
        ((name, log),) = trial.rendered(error.outcomes[0].event, "errors")
        assert name == "log"
        assert '"content": "ERROR disk", "level": "ERROR", "text": "disk"' in log
        assert list(trial.rendered(info.outcomes[0].event, "q")) == [
            ("files", '{"headers": {"level": "INFO", "text": "fine"}, "body": "INFO fine"}\n')
        ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "options", "data", "expected"),
    [
        ("taildir", TAIL + 'multiline_start = "^a"', b"a\n b\na\n", [({}, b"a\n b"), ({}, b"a")]),
        ("spooldir", 'spool_directory = "/nowhere"\nmax_line_length = 2', b"abc\n", [({}, b"ab"), ({}, b"c")]),
        ("spooldir", 'spool_directory = "/nowhere"\ndeserializer = "BLOB"', b"a\nb\n", [({}, b"a\nb\n")]),
        ("spooldir", 'spool_directory = "/nowhere"\ndelimiter = ";"', b"a\n;b", [({}, b"a\n"), ({}, b"b")]),
        ("syslog_udp", "port = 0", b"<11>a\n", [({"Facility": "1", "Severity": "3"}, b"a")]),
        ("taildir", 'paths = ["/x"]\ndelimiter = ";"', b"a;b", [({}, b"a"), ({}, b"b")]),
        (
            "taildir",
            'paths = ["/x"]\nencoding = "utf-16"',
            "\ufeffa\n\u00fc".encode("utf-16-be"),
            [({}, b"a"), ({}, b"\xc3\xbc")],
        ),
        ("spooldir", 'spool_directory = "/"\nencoding = "latin-1"', b"\xfc\n", [({}, b"\xc3\xbc")]),
        ("http", "port = 0", b'[{"headers": {"n": "1"}, "body": "x"}]', [({"n": "1"}, b"x")]),
        ("netcat", "port = 0", b"a\r\nb", [({}, b"a"), ({}, b"b")]),
    ],
)
def test_the_source_decodes_the_sample_as_its_own_input(
    tmp_path: Path, source: str, options: str, data: bytes, expected: list[object]
) -> None:
    """Sample input becomes the events that the source would make of it; nothing listens."""
    with Trial(blueprint(tmp_path, source=source, options=options)) as trial:
        assert list(trial.decoded(data).events()) == expected


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        ('type = "http"\nendpoint = "http://127.0.0.1:1/"', "ERROR d\u00fc\n"),
        ('type = "http"\nendpoint = "http://127.0.0.1:1/"\nformat = "json"', f"[{JSON}]"),
        ('type = "objects"\npath = "/nowhere"\nformat = "json"', f"{JSON}\n"),
        ('type = "objects"\npath = "/nowhere"\nformat = "parquet"', '{"body": "ERROR d\u00fc", "level": "ERROR"}\n'),
        ('type = "file_roll"\ndirectory = "/nowhere"', "ERROR d\u00fc\n"),
        ('type = "null"', "discarded"),
        ('type = "forward"\nhost = "127.0.0.1"', f"{JSON}\n"),
        ('type = "avro"\nhostname = "127.0.0.1"\nport = 1', f"{JSON}\n"),
        (
            'type = "kafka"\nbootstrap_servers = "127.0.0.1:1"\ntopic = "of-%{level}"',
            '{"topic": "of-ERROR", "value": "ERROR d\u00fc", "key": null, "headers": {"level": "ERROR"}}',
        ),
    ],
)
def test_a_sink_shows_what_its_destination_gets(tmp_path: Path, sink: str, expected: str) -> None:
    """A sink's text of an event is that of its request, file or message; it connects to nothing.

    For a binary protocol it is the event as JSON.
    """
    source = '[sources.more]\ntype = "netcat"\nport = 0\nchannels = ["more"]'
    text = f'{source}\n[channels.more]\ntype = "memory"\n[sinks.more]\nchannel = "more"\n{sink}\n'
    drawn = blueprint(tmp_path, text)
    with Trial(drawn, "more") as trial:
        (passage,) = trial.passages(trial.decoded("ERROR d\u00fc\n".encode(), {"level": "ERROR"}))
        assert list(trial.rendered(passage.outcomes[0].event, "more")) == [("more", expected)]


def test_interceptors_with_a_memory_see_earlier_events(tmp_path: Path) -> None:
    """``dedupe`` drops the second of two equal events, since the first counts as committed."""
    options = TAIL + '[[sources.in.interceptors]]\ntype = "dedupe"\n' + PARSE
    first, second = passages(blueprint(tmp_path, options=options), b"INFO a\nINFO a\n")
    assert first.outcomes[0].channels == ("q",)
    assert second.outcomes[0].dropped_by == "dedupe"


def test_a_failing_interceptor_is_named_and_other_events_pass(tmp_path: Path) -> None:
    """An interceptor's error is reported for its event alone; several events of one have an outcome each."""
    options = TAIL + function("half") + "\n" + function("twice")
    bad, good = passages(blueprint(tmp_path, options=options), b"bad\nok\n", level="INFO")
    assert bad.outcomes[0].failure == "python fails for it: ValueError: no such day"
    assert [outcome.channels for outcome in good.outcomes] == [("q",), ("q",)]


def test_an_interceptor_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    """An interceptor that cannot be built, or input that cannot be decoded, is an error with its reason."""
    drawn = blueprint(tmp_path, source="http", options="port = 0")
    with pytest.raises(TrialError, match=r"source in cannot read the input: RequestError: invalid JSON"):
        passages(drawn, b"[")
    options = TAIL + function("missing")
    with pytest.raises((TrialError, AgentConfigError), match="missing"):
        passages(blueprint(tmp_path, options=options), b"a\n")


def test_an_interceptor_that_asks_a_service_is_passed_over(tmp_path: Path) -> None:
    """``kubernetes``, which asks the API of a cluster, does not run; the others do."""
    options = TAIL + '[[sources.in.interceptors]]\ntype = "kubernetes"\nnode = "n"\n' + PARSE
    drawn = blueprint(tmp_path, options=options)
    with Trial(drawn) as trial:
        assert trial.passed_over == ["kubernetes"]
    (passage,) = passages(drawn, b"INFO fine\n")
    assert passage.outcomes[0].channels == ("q",)


CASE = """
[[tests]]
name = "levels"
input = ["# comment", "ERROR disk", "INFO fine"]
[[tests.expect]]
dropped = true
[[tests.expect]]
body = "ERROR disk"
headers = { level = "ERROR" }
absent = ["other"]
channels = ["errors"]
[[tests.expect]]
channels = ["q"]
"""


def test_a_test_succeeds_if_all_that_it_names_is_so(tmp_path: Path) -> None:
    """A test whose expectations hold has no failures."""
    drawn = blueprint(tmp_path, CASE)
    assert failures_of(drawn.config.tests[0], drawn) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("dropped = true", 'body = "x"', "expected it in a channel, but regex_filter drops it"),
        ('channels = ["q"]', "dropped = true", "expected it to be dropped, but it gets to q"),
        ('body = "ERROR disk"', 'body = "disk"', "  expected 'disk'"),
        ('level = "ERROR"', 'level = "WARN"', "  got      'ERROR'"),
        ('level = "ERROR"', 'lvl = "WARN"', "none; there are level, text"),
        ('absent = ["other"]', 'absent = ["text"]', "header text: expected none, got 'disk'"),
        ('channels = ["errors"]', 'channels = ["q"]', "channels: expected q, got errors"),
        ('"INFO fine"]', '"INFO fine", "INFO more"]', "expected 3 outcomes, got 4"),
        ("[[tests.expect]]\ndropped = true\n", "", "expected 2 outcomes, got 3"),
    ],
)
def test_a_difference_is_reported_in_words(tmp_path: Path, old: str, new: str, told: str) -> None:
    """Each difference between the expectation and the outcome is a line with both."""
    assert old in CASE
    drawn = blueprint(tmp_path, CASE.replace(old, new, 1))
    assert told in "\n".join(failures_of(drawn.config.tests[0], drawn))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("input = ", "inptu = ", "line 42: tests.0.inptu: no such key; did you mean 'input'?"),
        ('name = "levels"', 'source = "inn"', "tests.0.source: there is no source 'inn'; did you mean 'in'?"),
        ('["errors"]\n[[', '["erors"]\n[[', "tests.0.expect: there is no channel 'erors'; did you mean 'errors'?"),
        ("dropped = true", 'dropped = "yes"', "tests.0.expect.0.dropped: must be true or false, got 'yes'"),
        ("dropped = true", 'dropped = true\nbody = ""', "a dropped event has nothing else to compare"),
        ('{ level = "ERROR" }', "{ level = 3 }", "tests.0.expect.1.headers: must be a table of texts"),
        ('["# comment", "ERROR disk", "INFO fine"]', "7", "must be a list of texts or must be text, got 7"),
        ("[[tests]]", "[tests]", "tests: must be tables, each under [[tests]]"),
    ],
)
def test_a_mistake_in_a_test_is_a_problem_of_the_file(tmp_path: Path, old: str, new: str, told: str) -> None:
    """A misspelt key, an unknown name and a value of a wrong type are problems with their line, as in other tables."""
    assert old in CASE
    text = CASE.replace(old, new, 1)
    if new == "[tests]":
        text = '\n[tests]\nname = "x"\n'
    with pytest.raises(AgentConfigError) as raised:
        blueprint(tmp_path, text)
    assert told in str(raised.value)


def test_references_that_this_machine_lacks_do_not_hinder_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test runs where the keys of the destination are not set, and a note names them; a run of the agent refuses."""
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    text = AGENT.format(source="taildir", options=TAIL, place=tmp_path).replace("s3cret-key", "${env:NO_SUCH_KEY}")
    config = parse_toml(text, unset="unset")
    assert draw(config).sinks["log"].sinks[0].options.access_key_secret == "unset"
    assert "the environment variable NO_SUCH_KEY is not set" in config.notes[0]
    with pytest.raises(AgentConfigError, match="NO_SUCH_KEY is not set"):
        draw(parse_toml(text))
