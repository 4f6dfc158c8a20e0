"""Common mistakes in configurations, each with the one sentence that says what to do."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from producer.agent import AgentConfigError
from producer.agent.config import parse_flume, parse_toml, read_properties, read_toml, registry
from producer.agent.config.explain import explain
from producer.agent.run.blueprint import draw

TOML = """\
[agent]
name = "web"
monitoring = "127.0.0.1:9180"
[sources.access]
type = "taildir"
paths = ["/var/log/*.log"]
channels = ["q"]
[[sources.access.interceptors]]
type = "parse"
format = "access"
[channels.q]
type = "file"
byte_capacity = "64m"
[sinks.lh]
type = "loghub"
channel = "q"
project = "web"
logstore = "access"
endpoint = "http://127.0.0.1:25171"
access_key_id = "demo"
access_key_secret = "demo-secret"
"""
FLUME = """\
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = TAILDIR
a1.sources.r1.channels = c1
a1.sources.r1.filegroups = f1
a1.sources.r1.filegroups.f1 = /var/log/.*
a1.channels.c1.type = file
a1.sinks.k1.type = logger
a1.sinks.k1.channel = c1
"""
BYTES = "must be a whole number of bytes (also as 64k, 4m or 2g, in powers of 1024), at least 1"
SHELL = "is a shell's variable, which means nothing here; did you mean ${env:SECRET}?"


def told(text: str, *, flume: bool = False) -> list[str]:
    with pytest.raises(AgentConfigError) as caught:
        draw(parse_flume(text) if flume else parse_toml(text))
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        (
            'channels = ["q"]',
            'channel = "q"',
            'line 7: sources.access.channel: is for sinks; a source has channels, such as channels = ["q"]',
        ),
        (
            'channel = "q"',
            'channels = ["q"]',
            'line 16: sinks.lh.channels: is for sources; a sink takes from one channel, such as channel = "q"',
        ),
        (
            'channels = ["q"]',
            'channels = ["queue"]',
            "line 7: sources.access.channels: there is no channel 'queue'; there is only q",
        ),
        (
            'byte_capacity = "64m"',
            'checkpointDir = "/x"',
            "line 13: channels.q.checkpointDir: is Flume's name; here the option is 'directory'",
        ),
        (
            "[sources.access]",
            "[source.access]",
            "line 4: source: no such table; did you mean 'sources'?",
        ),
        (
            '[agent]\nname = "web"',
            'name = "web"\n[agent]',
            "line 1: name: is outside of a table: write it under [agent]",
        ),
        (
            'paths = ["/var/log/*.log"]',
            'paths = ["/var/log/*.log"]\nidle_timeout = 0',
            "line 7: sources.access.idle_timeout: must be a number, at least 1, got 0",
        ),
        (
            'monitoring = "127.0.0.1:9180"',
            "monitoring = true",
            "line 3: agent.monitoring: must be text that is not empty or a whole number from 1 to 65535, got true",
        ),
        (
            'byte_capacity = "64m"',
            'capacity = "${env:NO_SUCH}"',
            "line 13: channels.q.capacity: the environment variable NO_SUCH is not set",
        ),
        ('"64m"', '"64MB"', f"line 13: channels.q.byte_capacity: {BYTES}, got '64MB'"),
        (
            'byte_capacity = "64m"',
            'capacity = "10k"',
            (
                "line 13: channels.q.capacity: must be a whole number, at least 1, got '10k'; write it without a"
                " unit: the maximum number of events; empty to limit bytes only"
            ),
        ),
        (
            'byte_capacity = "64m"',
            "capacity = true",
            "line 13: channels.q.capacity: must be a whole number, at least 1, got true",
        ),
        (
            'byte_capacity = "64m"',
            'keep_alive = "3s"',
            (
                "line 13: channels.q.keep_alive: must be a number, at least 0, got '3s'; write it without a unit:"
                " seconds that a put waits for room"
            ),
        ),
        ('"demo-secret"', '"${SECRET}"', f"line 21: sinks.lh.access_key_secret: {SHELL}"),
        ('"demo-secret"', '"$SECRET"', f"line 21: sinks.lh.access_key_secret: {SHELL}"),
        (
            'paths = ["/var/log/*.log"]',
            "settle = 1",
            "line 4: sources.access.paths: is missing: globs of the files to follow, or file_groups",
        ),
        (
            'paths = ["/var/log/*.log"]',
            "paths = [\"/var/log/*.log\"]\nmultiline_start = '^('",
            (
                "line 7: sources.access.multiline_start: '^(' is not a regular expression: missing ), unterminated"
                " subpattern at position 1"
            ),
        ),
        ('"web"', '"web', "line 2: a text has no closing quote"),
        ("name = ", "name: ", "line 2: a key and its value have '=' between them, not ':'"),
        (
            'name = "web"',
            'name = "web"\nname = "b"',
            "line 3: name is already defined: a key may occur once in a table",
        ),
        (
            "[sinks.lh]",
            '[channels.q]\ntype = "memory"\n[sinks.lh]',
            "line 14: [channels.q] is already defined, in line 11",
        ),
        (
            '"/var/log/*.log"',
            '"/var/log/\\d.log"',
            "line 6: unescaped '\\' in a string; in single quotes, such as '\\d+', a backslash stands for itself",
        ),
        ('channel = "q"', 'channel = ["q"]', "line 16: sinks.lh.channel: must be text, got ['q']"),
    ],
)
def test_each_mistake_in_toml_gives_one_sentence_with_its_line_and_the_correction(
    right: str, wrong: str, sentence: str
) -> None:
    """Each mistake in TOML gives one sentence with its line and the correction, and no follow-up errors."""
    assert told(TOML.replace(right, wrong, 1)) == [sentence]


def test_a_port_may_be_given_alone_as_a_number_and_a_byte_order_mark_is_ignored() -> None:
    """A port may be given alone as a number, and a byte order mark is ignored."""
    config = parse_toml("\ufeff" + TOML.replace('"127.0.0.1:9180"', "9180"))
    assert draw(config).config.monitoring == "9180"


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        ("r1.channels = c1", "r1.channel = c1", "line 5: a1.sources.r1.channel: is not known; a source has 'channels'"),
        (
            "k1.channel = c1",
            "k1.channels = c1",
            "line 10: a1.sinks.k1.channels: is not known; a sink has one 'channel'",
        ),
        (
            "/var/log/.*",
            "/var/log/*.log",
            (
                "line 7: a1.sources.r1.filegroups.f1: '*.log' is not a regular expression: nothing to repeat at"
                " position 0; a"
                " glob such as *.log is .*\\.log here"
            ),
        ),
        (
            "c1.type = file",
            "c1.type = file\na1.channels.c1.encryption.activeKey = k",
            (
                "line 9: a1.channels.c1.encryption.activeKey: is not known: Flume's key stores are not read;"
                " `key_file` encrypts a file channel (`producer agent explain file`)"
            ),
        ),
        (
            "c1.type = file",
            "c1.type = file\na1.channels.c1.capacity = 10k",
            (
                "line 9: a1.channels.c1.capacity: must be a whole number, at least 1, got '10k'; write it without a"
                " unit: the maximum number of events; empty to limit bytes only"
            ),
        ),
        (
            "k1.type = logger",
            "k1.type = logger\na1.sinks.k1.maxBytesToLog = 0",
            f"line 10: a1.sinks.k1.maxBytesToLog: {BYTES}, got 0",
        ),
        (
            "k1.type = logger",
            "k1.type = avro\na1.sinks.k1.hostname = h\na1.sinks.k1.port = 1\na1.sinks.k1.connect-timeout = -500",
            "line 12: a1.sinks.k1.connect-timeout: must be a number, at least 1, got -500",
        ),
        (
            "k1.type = logger",
            "k1.type = logger\na1.sinks.k1.maxBytesToLog = ${env:NO_SUCH}",
            "line 10: a1.sinks.k1.maxBytesToLog: the environment variable NO_SUCH is not set",
        ),
        (
            "k1.type = logger",
            "k1.type = logger\na1.sinks.k1.pwd = ${sys:PWD}",
            "line 10: a1.sinks.k1.pwd: ${sys:PWD} is a Java system property, and the agent has none; use ${env:…}",
        ),
        (
            "k1.type = logger",
            "k1.type = org.apache.flume.sink.hbase2.HBase2Sink",
            (
                "line 9: a1.sinks.k1.type: no such type 'org.apache.flume.sink.hbase2.HBase2Sink': it exists in Flume"
                " only; use kafka or objects, or a plugin"
            ),
        ),
        (
            "c1.type = file",
            "c1.type = jdbc",
            (
                "line 8: a1.channels.c1.type: no such type 'jdbc': it exists in Flume only; use file, which survives"
                " a crash,"
                " too"
            ),
        ),
        (
            "a1.sinks = k1",
            "a1.sinks = k1\na1.configfilters = f1\na1.configfilters.f1.type = env",
            "line 4: a1.configfilters: filters of Flume are not supported; use ${env:…} or ${file:…}",
        ),
    ],
)
def test_a_mistake_in_flumes_file_is_reported_once_under_the_files_own_names(
    right: str, wrong: str, sentence: str
) -> None:
    """A mistake in Flume's file is reported once, under the file's own names."""
    assert told(FLUME.replace(right, wrong, 1), flume=True) == [sentence]


def test_a_toml_file_given_as_flumes_or_the_reverse_and_a_file_in_another_encoding_are_refused(tmp_path: Path) -> None:
    """A TOML file given as Flume's, or the reverse, and a file in another encoding are refused with advice."""
    path = tmp_path / "file"
    path.write_text(f"# an agent\n{FLUME}")
    with pytest.raises(
        AgentConfigError, match=r"line 2: this looks like a properties file of Flume: give it with --flume"
    ):
        read_toml(path)
    path.write_text(TOML)
    with pytest.raises(AgentConfigError, match=r"line 1: this is the agent's TOML.*: use --config"):
        read_properties(path)
    path.write_bytes(TOML.replace('"web"', '"wéb"').encode("latin-1"))
    with pytest.raises(AgentConfigError, match="line 2: byte 0xe9 is not UTF-8: save the file as UTF-8"):
        read_toml(path)


SECOND = TOML.replace(
    "[channels.q]",
    """[sources.a]
type = "syslog_tcp"
port = 5140
channels = ["q"]
[channels.q]""",
)


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        (
            "[channels.q]",
            '[sources.b]\ntype = "http"\nport = 5140\nchannels = ["q"]\n[channels.q]',
            "line 17: sources.b.port: port 5140 is already used by sources.a",
        ),
        (
            "port = 5140",
            'port = 5140\nbind = "300.1.2.3"',
            "line 14: sources.a.bind: must be an address of this machine, got '300.1.2.3'",
        ),
        (
            "[sinks.lh]",
            (
                '[channels.z]\ntype = "file"\ndirectory = "loghub-agent/channels/q/events"'
                '\n[sinks.z]\ntype = "null"\nchannel = "z"\n[sinks.lh]'
            ),
            None,
        ),
    ],
)
def test_two_components_may_share_neither_a_port_of_one_address_nor_a_directory(
    right: str, wrong: str, sentence: str | None
) -> None:
    """Two components may share neither a port of one address nor a directory."""
    text = SECOND.replace(right, wrong, 1)
    if sentence is None:
        text = text.replace('channels = ["q"]', 'channels = ["q", "z"]')
        path = Path("loghub-agent/channels/q/events").absolute()
        sentence = f"line 20: channels.z.directory: {path} is already used by channels.q"
    assert told(text) == [sentence]


def test_two_sources_on_one_spool_directory_are_refused_by_whatever_path_they_name_it(tmp_path: Path) -> None:
    """Two sources on one spool directory are refused, by whatever path they name it."""
    (tmp_path / "other").symlink_to(tmp_path)
    source = '[sources.{}]\ntype = "spooldir"\nspool_directory = "{}"\nchannels = ["q"]\n'
    text = SECOND.replace(
        "[channels.q]", f"{source.format('s', tmp_path)}{source.format('t', tmp_path / 'other')}[channels.q]"
    )
    assert told(text) == [f"line 21: sources.t.spool_directory: {tmp_path / 'other'} is already used by sources.s"]


def test_a_glob_that_matches_no_file_yet_and_dead_letters_without_a_sink_give_notes(tmp_path: Path) -> None:
    """A glob that matches no file yet, and dead letters without a sink, give notes."""
    text = TOML.replace("/var/log/*.log", f"{tmp_path}/*.log").replace(
        'channel = "q"', 'channel = "q"\ndead_letters = "d"'
    )
    notes = draw(parse_toml(text + '[channels.d]\ntype = "memory"\n')).notes
    assert notes == (
        f"line 4: sources.access: no file matches {tmp_path}/*.log yet",
        (
            "line 23: channels.d: no sink takes from it: refused events stay in it, and once it is full, in their "
            "sink's channel"
        ),
        "line 17: sinks.lh.dead_letters: 'd' is not a file channel: a crash of the agent loses the dead letters",
    )
    (tmp_path / "a.log").touch()
    assert len(draw(parse_toml(text + '[channels.d]\ntype = "file"\n')).notes) == 1


def test_a_group_whose_sinks_do_not_all_wait_for_large_deliveries_gives_a_note() -> None:
    """A note says that `objects` writes small objects in a group with a sink that does not wait."""
    objects = '[sinks.{}]\ntype = "objects"\nchannel = "q"\npath = "/tmp"\n'
    group = '[groups.g]\ntype = "load_balance"\nsinks = ["a", "{}"]\n'
    text = TOML + objects.format("a") + objects.format("b")
    assert not [note for note in draw(parse_toml(text + group.format("b"))).notes if "groups.g" in note]
    (note,) = [note for note in draw(parse_toml(text + group.format("lh"))).notes if "groups.g" in note]
    assert "groups.g.sinks: a will write an object for each delivery, perhaps of one event" in note


def test_the_note_about_a_spillable_channel_says_that_only_the_dead_letters_in_its_memory_are_lost() -> None:
    """The note about a spillable channel says that only the dead letters in its memory are lost."""
    text = TOML.replace('channel = "q"', 'channel = "q"\ndead_letters = "d"')
    notes = draw(parse_toml(text + '[channels.d]\ntype = "spillable"\n')).notes
    assert notes[-1] == (
        "line 17: sinks.lh.dead_letters: 'd' is not a file channel: a crash of the agent loses the dead letters in its"
        " memory"
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_a_file_in_utf_16_is_refused_with_the_advice_to_save_it_as_utf_8(encoding: str, tmp_path: Path) -> None:
    """A file in UTF-16 is refused with the advice to save it as UTF-8."""
    path = tmp_path / "agent.properties"
    path.write_bytes(FLUME.encode(encoding))
    with pytest.raises(AgentConfigError) as caught:
        read_properties(path, "a1")
    (problem,) = caught.value.problems
    assert str(problem) == "line 1: contains a NUL character: if the file is UTF-16, save it as UTF-8"


def _burying(*ways: str) -> str:
    """Return a sink for each of ``ways``; ``ab`` takes from channel ``a`` with dead letters in ``b``."""
    names = sorted(set("".join(ways)) | {"a"})
    sinks = [
        f'[sinks.{way}]\ntype = "http"\nendpoint = "http://h/"\nchannel = "{way[0]}"\ndead_letters = "{way[1]}"\n'
        for way in ways
    ]
    text = '[sources.s]\ntype = "sequence"\nchannels = ["a"]\n'
    return text + "".join([f'[channels.{name}]\ntype = "file"\n' for name in names] + sinks)


def test_sinks_whose_dead_letters_go_to_each_others_channels_are_refused_with_one_message() -> None:
    """Sinks whose dead letters go to each other's channels are refused, with one message."""
    assert draw(parse_toml(_burying("ab", "bc"))).sinks.keys() == {"ab", "bc"}
    for ways in (("ab", "ba"), ("ab", "bc", "ca")):
        sentence = "leads back to 'a': events that all these sinks refuse would circulate for ever"
        assert [line.partition(": ")[2] for line in told(_burying(*ways))] == [f"sinks.ab.dead_letters: {sentence}"]


def test_the_sinks_of_a_group_must_share_their_dead_letters() -> None:
    """The sinks of a group must share their dead letters."""
    group = '[groups.g]\ntype = "failover"\nsinks = ["ab", "ac"]\n'
    message = "the sinks of a group share their dead letters; these have b, c"
    assert [line.partition(": ")[2] for line in told(_burying("ab", "ac") + group)] == [f"groups.g.sinks: {message}"]


def test_a_plugin_that_cannot_be_loaded_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that fails to load is reported by check and explain; one with a built-in type's name is ignored with a
    note.
    """
    points = {name: EntryPoint(name, "no_such_module:Sink", "group") for name in ("broken", "null")}
    monkeypatch.setattr(registry, "_installed", cache(lambda: {"sinks": points}))
    reason = "broken of no_such_module:Sink cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"
    text = TOML[: TOML.index("[sinks.lh]")] + '[sinks.k]\ntype = "broken"\nchannel = "q"\n'
    assert told(text) == [f"line 15: sinks.k.type: {reason}"]
    assert explain("broken") == f"sinks.broken\n  {reason}"
    notes = draw(parse_toml(text.replace("broken", "null").replace("/var/log/", "/**/"))).notes
    assert notes == (
        (
            "line 15: sinks.k.type: null is the built-in type; the plugin no_such_module:Sink of the same name is"
            " ignored"
        ),
    )


def test_entry_points_are_read_once_for_all_components_and_again_for_an_unknown_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entry points are read once for all components, and again for an unknown type."""
    read: list[dict[str, str]] = []
    registry._installed.cache_clear()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "entry_points", lambda **group: read.append(group) or entry_points(**group))
    for _ in range(2):
        draw(parse_toml(TOML.replace("/var/log/", "/**/")))
    assert len(read) == 1
    with pytest.raises(LookupError, match="no such type 'late'"):
        registry.class_of("sinks", "late")
    (tmp_path / "late-1.dist-info").mkdir()
    (tmp_path / "late-1.dist-info" / "METADATA").write_text("Name: late\nVersion: 1\n")
    (tmp_path / "late-1.dist-info" / "entry_points.txt").write_text(
        "[loghub_producer.agent.sinks]\nlate = producer.agent.sinks.null:NullSink\n"
    )
    os.utime(tmp_path, (0, 0))  # Python's cache of packages compares this time
    assert registry.class_of("sinks", "late") is registry.class_of("sinks", "null")
    monkeypatch.undo()
    registry._installed.cache_clear()
