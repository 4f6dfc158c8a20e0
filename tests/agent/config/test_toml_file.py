from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from producer.agent import AgentConfigError, ComponentConfig, GroupConfig, SinkConfig, SourceConfig
from producer.agent.config import file_bytes, parse_toml, read_toml
from producer.agent.run.blueprint import draw
from producer.agent.sinks.null import NullSink
from producer.text.extras import how_to_install

WHOLE = """\
[agent]
name = "web"
state = "/var/lib/agent"
monitoring = "127.0.0.1:9180"
stop_timeout = 5

[sources.r1]
type = "stress"
channels = ["c1", "c2"]
size = 10

[[sources.r1.interceptors]]
type = "host"
[[sources.r1.interceptors]]
name = "again"
type = "host"
use_ip = false

[sources.r1.selector]
type = "multiplexing"
header = "kind"
mapping.a = ["c1"]
default = ["c2"]

[channels.c1]
type = "memory"
[channels.c2]
type = "memory"
[channels.refused]
type = "memory"

[sinks.k1]
type = "null"
channel = "c1"
dead_letters = "refused"
[sinks.k2]
type = "null"
channel = "c1"
[sinks.k3]
type = "null"
channel = "c2"

[groups.g1]
type = "failover"
sinks = ["k1", "k2"]
priority = { k1 = 2, k2 = 1 }
"""

INTERCEPTORS = WHOLE[WHOLE.index("[[") : WHOLE.index("[sources.r1.selector]")]
DRAWN = WHOLE.replace(INTERCEPTORS, "")


def problems_of(text: str) -> list[str]:
    """Return all problems found in reading and checking."""
    with pytest.raises(AgentConfigError) as caught:
        draw(parse_toml(text))
    return [str(problem) for problem in caught.value.problems]


def test_a_file_has_all_that_an_agent_is_made_of() -> None:
    """Each table and key is read into its part of the configuration."""
    config = parse_toml(WHOLE)
    assert (config.name, config.state, config.monitoring, config.stop_timeout) == (
        "web",
        Path("/var/lib/agent"),
        "127.0.0.1:9180",
        5.0,
    )
    assert config.problems == ()
    assert config.sources["r1"] == SourceConfig(
        "r1",
        "stress",
        {"size": 10},
        channels=("c1", "c2"),
        interceptors=(ComponentConfig("host", "host"), ComponentConfig("again", "host", {"use_ip": False})),
        selector=ComponentConfig(
            "selector", "multiplexing", {"header": "kind", "mapping": {"a": ["c1"]}, "default": ["c2"]}
        ),
    )
    assert config.sinks["k1"] == SinkConfig("k1", "null", channel="c1", dead_letters="refused")
    assert config.groups["g1"] == GroupConfig("g1", "failover", {"priority": {"k1": 2, "k2": 1}}, sinks=("k1", "k2"))


def test_all_problems_are_reported_at_once_in_order_with_lines_and_suggestions() -> None:
    """All problems are reported at once, in order, with lines and suggestions."""
    text = DRAWN.replace("monitoring", "monitorin").replace("size = 10", "nosuch = 1")
    text = text.replace('channels = ["c1", "c2"]', 'channels = ["c1", "c3"]').replace("k2 = 1", "k9 = 1")
    text = text.replace("header =", "hedaer =").replace('channel = "c2"', "")
    assert problems_of(text + "[sinkgroups]\n") == [
        "line 4: agent.monitorin: unknown option; did you mean monitoring?",
        "line 9: sources.r1.channels: there is no channel 'c3'; there are c1, c2, refused",
        (
            "line 10: sources.r1.nosuch: unknown option; known options are"
            " size, batch_size, max_total_events, max_events_per_second"
        ),
        "line 14: sources.r1.selector.hedaer: unknown option; did you mean header?",
        "line 32: sinks.k3.channel: is missing: name the channel to take from",
        "line 39: groups.g1.priority.k9: the group has no such sink; there are k1, k2",
        "line 40: sinkgroups: no such table; did you mean 'groups'?",
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            'type = "loghub"\nendpoint = "ftp://far.test"\nnosuch = 1',
            ["endpoint", "logstore", "nosuch", "project"],
        ),
        ('type = "http"\nendpoint = "far"\nbatch_size = 0', ["batch_size", "endpoint"]),
        ('type = "http"\nproxy = "ftp://me:hidden@p"\nnosuch = 1', ["endpoint", "nosuch", "proxy"]),
        ('type = "thrift"\nport = 0', ["hostname", "port"]),
        ('type = "loghub"', ["logstore", "project"]),
        ('type = "loghub"\nproject = "p"\nlogstore = "l"\ncredentials = "oidc"', ["endpoint"]),
        ('type = "loghub"\nendpoints = ["ftp://h"]', ["logstore", "project"]),
    ],
)
def test_wrong_values_and_missing_keys_are_reported_together(options: str, told: list[str]) -> None:
    """Wrong values and missing keys are reported together, without errors about values that were not given."""
    problems = problems_of(f'[channels.c]\ntype = "memory"\n[sinks.k]\nchannel = "c"\n{options}\n')
    own = [problem.partition("sinks.k.")[2] for problem in problems if "sinks.k." in problem]
    assert sorted(problem.partition(":")[0] for problem in own) == told
    assert "hidden" not in str(problems)


@pytest.mark.parametrize(
    ("key", "meant", "wrong"),
    [
        ('channels = ["c1", "c2"]', "channels", 'chanels = ["c1", "c2"]'),
        ('dead_letters = "refused"', "dead_letters", 'dead_leters = "refused"'),
        ('sinks = ["k1", "k2"]', "sinks", 'sink = ["k1", "k2"]'),
    ],
)
def test_misspelt_keys_for_routing_such_as_channels_get_suggestions_like_options(
    key: str, meant: str, wrong: str
) -> None:
    """Misspelt keys for routing, such as ``channels``, get suggestions like options."""
    assert key in DRAWN
    told = [each for each in problems_of(DRAWN.replace(key, wrong)) if "unknown option" in each]
    assert [each.partition("; ")[2] for each in told] == [f"did you mean {meant}?"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[agent]\nname = web\n", "line 2: invalid TOML: invalid value at name; write texts in quotes"),
        ("[agent\nname = 1\n", "line 1: invalid TOML: expected ']' at the end of a table declaration"),
        ("[agent]\n[agent]\n", "line 2: [agent] is already defined, in line 1"),
        ('name = "', "line 1: a text has no closing quote"),
        ("[agent]\nname = 'web\n\n[sinks]\n", "line 2: a text has no closing quote"),
        ("[agent]\nname = '''web\n\n[sinks]\n", "line 2: a text has no closing quote"),
        ('[agent]\nname = """web\n\n[sinks]\n', "line 2: a text has no closing quote"),
        ('[agent]\nname = """web"""\n\nstate = "', "line 4: a text has no closing quote"),
    ],
)
def test_a_syntax_error_is_reported_with_its_line_and_a_correction_but_without_the_lines_text(
    text: str, told: str
) -> None:
    """A syntax error is reported with its line and a correction, but without the line's text, which may be secret."""
    assert problems_of(text) == [told]


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000, "{ a = " * 5000])
def test_deep_nesting_and_huge_numbers_are_reported_as_problems_with_their_lines(value: str) -> None:
    """Deep nesting and huge numbers are reported as problems with their lines."""
    [problem] = problems_of(f"[agent]\nstop_timeout = {value}\n[sinks]\n")
    assert problem.startswith("line 2: cannot be read: ")


def test_a_missing_channel_of_a_sink_in_a_group_gives_one_problem() -> None:
    """A missing channel of a sink in a group gives one problem."""
    text = DRAWN.replace('[sinks.k2]\ntype = "null"\nchannel = "c1"', '[sinks.k2]\ntype = "null"')
    assert problems_of(text) == ["line 29: sinks.k2.channel: is missing: name the channel to take from"]


def test_a_huge_value_is_shown_in_part() -> None:
    """A huge value is truncated in messages, which a running agent logs."""
    [problem] = problems_of(DRAWN.replace("size = 10", f'size = "{"y" * 70_000}"'))
    assert problem.startswith("line 10: sources.r1.size: must be a whole number")
    assert problem.endswith(" characters)")
    assert len(problem) < 2000


@pytest.mark.parametrize("value", ['""', '"${env:EMPTY}"'])
@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("sources.r1", "line 8: sources.r1.type"),
        ("[sources.r1.interceptors", "line 13: sources.r1.interceptors.0.type"),
        ("sources.r1.selector", "line 20: sources.r1.selector.type"),
        ("channels.c1", "line 26: channels.c1.type"),
        ("sinks.k1", "line 33: sinks.k1.type"),
        ("groups.g1", "line 44: groups.g1.type"),
    ],
)
def test_an_empty_type_is_refused_like_a_missing_one(
    table: str, told: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty type is refused like a missing one."""
    monkeypatch.setenv("EMPTY", "")
    begin, header, rest = WHOLE.partition(f"[{table}]")
    assert header
    wrong = re.sub('type = "[a-z_]+"', f"type = {value}", rest, count=1)
    assert problems_of(begin + header + wrong) == [f"{told}: is empty: set it to the component's type"]


def test_a_channels_options_are_checked_before_it_is_opened() -> None:
    """A channel's own rules, such as for ``fsync``, are checked with its line."""
    text = DRAWN.replace('[channels.c2]\ntype = "memory"', '[channels.c2]\ntype = "file"\nfsync = "always"')
    assert problems_of(text) == [
        'line 22: channels.c2.fsync: must be "commit", "os" or a number of seconds from 0.001 to 86400, got \'always\''
    ]
    draw(parse_toml(text.replace('"always"', "0.5")))
    draw(parse_toml(text.replace('"always"', '"0.5"')))


@pytest.mark.parametrize("package", ["no_such_package", "no_such_package.inner"])
def test_a_missing_python_package_is_reported_with_the_extra_that_has_it_even_if_it_is_imported_late(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing Python package is reported with the extra that has it, even if it is imported late."""
    monkeypatch.setattr(NullSink, "needs", {package: "extra"}, raising=False)
    told = [problem.partition(": ")[2] for problem in problems_of(DRAWN)]
    wrong = f"type: type 'null' needs the Python package {package}: {how_to_install('extra')}"
    assert told == [f"sinks.{name}.{wrong}" for name in ("k1", "k2", "k3")]


def test_a_selectors_channels_are_the_sources() -> None:
    """A selector's optional channel must be one of the source's."""
    text = (
        DRAWN[: DRAWN.index("[sources.r1.selector]")]
        + '[sources.r1.selector]\ntype = "replicating"\noptional = ["c3"]\n'
    )
    assert problems_of(text + DRAWN[DRAWN.index("[channels.c1]") :]) == [
        "line 14: sources.r1.selector.optional: the source has no channel 'c3'; there are c1, c2"
    ]


def test_secrets_come_from_the_environment_and_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``${env:X}`` and ``${file:/path}`` are replaced in any text, ``$${env:X}`` stays; a missing one has its line."""
    (tmp_path / "secret").write_text("hush\n")
    monkeypatch.setenv("WHERE", "c1")
    text = WHOLE.replace('channel = "c1"', 'channel = "${env:WHERE}"').replace(
        "size = 10", f'size = 10\nkey = "<${{file:{tmp_path}/secret}}> $${{env:WHERE}}"'
    )
    config = parse_toml(text)
    assert config.sinks["k1"].channel == "c1"
    assert config.sources["r1"].options["key"] == "<hush> ${env:WHERE}"
    config = parse_toml('[sources.r1]\ntype = "${env:NOT_THERE}"\na = "${file:/not/there}"\nb = ["${sys:user.home}"]')
    assert [str(problem) for problem in config.problems] == [
        "line 2: sources.r1.type: the environment variable NOT_THERE is not set",
        "line 3: sources.r1.a: /not/there cannot be read: No such file or directory",
        "line 4: sources.r1.b: ${sys:user.home} is a Java system property, and the agent has none; use ${env:…}",
    ]


def test_an_unreadable_file_is_reported_with_its_path_and_the_reason(tmp_path: Path) -> None:
    """An unreadable file is reported with its path and the reason."""
    with pytest.raises(AgentConfigError, match=r"missing.toml: 1 problem\n  cannot be read: No such file"):
        read_toml(tmp_path / "missing.toml")


def _with_selector(text: str) -> str:
    before = DRAWN[: DRAWN.index("[sources.r1.selector]")]
    return f'{before}[sources.r1.selector]\ntype = "multiplexing"\n{text}{DRAWN[DRAWN.index("[channels.c1]") :]}'


def test_a_selector_that_reaches_no_channel_is_refused() -> None:
    """A selector that would drop every event is refused."""
    assert problems_of(_with_selector("")) == [
        "line 12: sources.r1.selector: has no mapping, optional or default: no event would reach a channel"
    ]


@pytest.mark.parametrize(("default", "notes"), [('default = ["c1"]\n', 0), ("default = []\n", 0), ("", 1)])
def test_a_multiplexing_selector_without_default_gives_a_note_unless_default_is_given(default: str, notes: int) -> None:
    """A multiplexing selector without ``default`` gives a note, unless ``default = []`` is given."""
    text = _with_selector(f'header = "kind"\nmapping = {{a = ["c1"]}}\n{default}')
    found = [note for note in draw(parse_toml(text)).notes if "selector" in note]
    told = "line 12: sources.r1.selector: has no default: events with another 'kind' are dropped"
    assert len(found) == notes
    assert all(note.startswith(told) for note in found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("size = 10", 'size = "${env:KEY}"'),
        ("size = 10", 'size = "${file:FILE}"'),
        ("size = 10", 'size = ["${env:KEY}"]'),
        ('type = "stress"', 'type = "${env:KEY}"'),
        ('channel = "c1"', 'channel = "${env:KEY}"'),
        ('channels = ["c1", "c2"]', 'channels = ["${env:KEY}"]'),
        ('type = "memory"', 'type = "file"\nfsync = "${env:KEY}"'),
    ],
)
def test_a_message_shows_the_reference_instead_of_its_value_whatever_is_wrong_with_it(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message shows the reference instead of its value, whatever is wrong with it."""
    monkeypatch.setenv("KEY", "hush-hush 'quoted'")
    (tmp_path / "key").write_text("hush-hush 'quoted'\n")
    assert old in DRAWN
    told = problems_of(DRAWN.replace(old, new.replace("FILE", str(tmp_path / "key")), 1))
    assert told
    assert not [problem for problem in told if "hush" in problem or "quoted" in problem]


@pytest.mark.parametrize("sink", ['type = "http"\nheaders = {A = ["hush"]}', 'type = "kafka"\nconfig = {a = ["hush"]}'])
def test_tables_with_secrets_are_not_shown(sink: str) -> None:
    """Tables of headers and settings, which may hold secrets, are not shown."""
    told = problems_of(f'[sinks.s]\nchannel = "c"\n{sink}\n')
    assert [problem for problem in told if "the value is secret, and not shown" in problem]
    assert "hush" not in str(told)


def test_a_name_of_thousands_of_parts_is_refused_at_once() -> None:
    """A key of thousands of parts is refused at once; reading it would take minutes."""
    line = DRAWN.count("\n") + 1
    assert problems_of(DRAWN + f"[{'a.' * 50_000}a]\n") == [f"line {line}: a name of more than 64 parts"]


def test_a_configuration_may_come_through_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration may come from a pipe; one without a writer, or with too many bytes, is refused."""
    monkeypatch.setattr(file_bytes, "_PATIENCE", 0.05)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(AgentConfigError, match="a pipe without a writer"):
        read_toml(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)
    try:
        os.write(writer, DRAWN.encode())
        with pytest.raises(AgentConfigError, match="a pipe that has delivered nothing"):
            read_toml(pipe)
        os.write(writer, DRAWN.encode())
        os.close(writer)
        writer = -1
        assert draw(read_toml(pipe)).sources
    finally:
        for descriptor in {reader, writer} - {-1}:
            os.close(descriptor)
    (tmp_path / "large").write_bytes(b"#" * (5 << 20))
    with pytest.raises(AgentConfigError, match="more than 4194304 bytes"):
        read_toml(tmp_path / "large")
