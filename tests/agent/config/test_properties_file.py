from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from producer.agent import AgentConfigError, ComponentConfig
from producer.agent.config import parse_flume, parse_toml
from producer.agent.run.blueprint import draw
from producer.agent.run.convert import convert
from producer.agent.sources.stress import StressSource

FLUME = r"""
# two agents
a1.sources = r1
a1.channels = c1 c2
a1.sinks = k1 k2 k3
a1.sinkgroups = g1

a1.sources.r1.type = org.apache.flume.source.StressSource
a1.sources.r1.channels = c1 c2
a1.sources.r1.batchSize = 100
a1.sources.r1.maxTotalEvents = ${env:EVENTS}
a1.sources.r1.selector.type = multiplexing
a1.sources.r1.selector.header = kind
a1.sources.r1.selector.mapping.a = c1
a1.sources.r1.selector.mapping.b = c1 \
                                   c2
a1.sources.r1.selector.default = c2

a1.channels.c1.type = FILE
a1.channels.c1.checkpointDir = /var/flume/checkpoint
a1.channels.c1.dataDirs = /var/flume/data, /mnt/data
a1.channels.c1.checkpointInterval = 15000
a1.channels.c1.useDualCheckpoints = false
a1.channels.c2.type = memory
a1.channels.c2.capacity = 10000
a1.channels.c2.keep-alive = 5

a1.sinks.k1.type = null
a1.sinks.k1.channel = c1
a1.sinks.k2.type = null
a1.sinks.k2.channel = c1
a1.sinks.k2.batchSize = 1000
a1.sinks.k3.type = logger
a1.sinks.k3.channel = c2
a1.sinkgroups.g1.sinks = k1 k2
a1.sinkgroups.g1.processor.type = failover
a1.sinkgroups.g1.processor.priority.k1 = 10
a1.sinkgroups.g1.processor.priority.k2 = 5
a1.sinkgroups.g1.processor.maxpenalty = 10000

b1.sources = r1
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTS", "7")


def problems_of(text: str) -> list[str]:
    with pytest.raises(AgentConfigError) as caught:
        draw(parse_flume(text, "a1"))
    return [str(problem) for problem in caught.value.problems]


def test_flumes_file_gives_our_names_and_units() -> None:
    """Flume's types, keys, milliseconds, lists, maps and references are translated."""
    config = parse_flume(FLUME, "a1")
    source = config.sources["r1"]
    assert (source.type, source.channels) == ("stress", ("c1", "c2"))
    assert source.options == {"batch_size": 100, "max_total_events": 7}
    mapping = {"a": ["c1"], "b": ["c1", "c2"]}
    assert source.selector.options == {"header": "kind", "mapping": mapping, "default": ["c2"]}
    assert config.channels["c1"].options == {
        "directory": "/var/flume/checkpoint/loghub-agent",
        "data_directories": ["/var/flume/data/loghub-agent", "/mnt/data/loghub-agent"],
        "checkpoint_interval": 15.0,
        "dual_checkpoints": False,
    }
    assert config.channels["c2"].options == {"capacity": 10000, "keep_alive": 5.0}
    group = config.groups["g1"]
    assert (group.type, group.sinks) == ("failover", ("k1", "k2"))
    assert group.options == {"priority": {"k1": 10, "k2": 5}, "maxpenalty": 10.0}
    draw(config)


def test_flumes_commits_that_are_not_synced_each_are_synced_every_five_seconds() -> None:
    """``fsyncInterval`` defaults to five seconds, and has no effect while every commit is synced."""
    text = "x.channels = f g\nx.channels.f.type = file\nx.channels.g.type = file\nx.channels.g.fsyncInterval = 7\n"
    channels = parse_flume(text + "x.channels.f.fsyncPerTransaction = false\n").channels
    assert (channels["f"].options["fsync"], channels["g"].options.get("fsync")) == (5.0, None)


def test_all_keys_of_flumes_channels_are_accepted() -> None:
    """All keys of Flume's channels are accepted; syncs and the halves of a spillable channel are translated."""
    text = (
        "x.channels = f s\nx.channels.f.type = file\nx.channels.f.checkpointDir = /c\n"
        "x.channels.f.dataDirs = /d\nx.channels.f.backupCheckpointDir = /b\nx.channels.f.checkpointOnClose = true\n"
        "x.channels.f.use-fast-replay = true\nx.channels.f.fsyncPerTransaction = false\n"
        "x.channels.f.fsyncInterval = 7\nx.channels.s.type = SPILLABLEMEMORY\nx.channels.s.memoryCapacity = 10000\n"
        "x.channels.s.overflowCapacity = 1000000\nx.channels.s.byteCapacity = 800000\n"
        "x.channels.s.overflowTimeout = 3\nx.channels.s.avgEventSize = 500\nx.channels.s.checkpointDir = /s\n"
    )
    config = parse_flume(text)
    assert config.problems == ()
    assert config.channels["f"].options == {
        "directory": "/c/loghub-agent",
        "data_directories": ["/d/loghub-agent"],
        "fsync": 7.0,
    }
    assert config.channels["s"].options == {
        "directory": "/s/loghub-agent",
        "capacity": 1_010_000,
        "memory_bytes": 800_000,
    }


def test_a_value_that_a_component_cannot_translate_is_reported_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that a component cannot translate is reported with its line."""
    text = FLUME + "a1.channels.c1.fsyncPerTransaction = false\na1.channels.c1.fsyncInterval = often\n"
    rule = 'must be "commit", "os" or a number of seconds from 0.001 to 86400'
    assert [told.partition(": ")[2] for told in problems_of(text)] == [f"a1.channels.c1.fsync: {rule}, got 'often'"]

    def stumble(values: dict[str, str]) -> dict[str, str]:
        return {"batchSize": str(int(values["batchSize"] + "x"))}

    monkeypatch.setattr(StressSource.Options, "translate_flume", stumble, raising=False)
    told = problems_of(FLUME)
    assert told[0].startswith("line 8: a1.sources.r1: its values cannot be translated: invalid literal for int()")


def test_the_agent_is_chosen_by_name() -> None:
    """A file with several agents needs a name, and a wrong name gets a suggestion."""
    with pytest.raises(AgentConfigError, match=r"has the agents a1, b1: say which one \(--name\)"):
        parse_flume(FLUME)
    with pytest.raises(AgentConfigError, match=r"has no agent 'a11'; did you mean 'a1'\?"):
        parse_flume(FLUME, "a11")
    assert parse_flume("x.sources = r1").name == "x"


def test_unknown_types_keys_and_filters_are_reported_with_their_lines_and_flumes_nearest_names() -> None:
    """Unknown types, keys and filters are reported with their lines and Flume's nearest names."""
    text = FLUME.replace("k3.type = logger", "k3.type = hive").replace("r1.batchSize", "r1.batchSiez")
    text = text.replace("useDualCheckpoints = false", "useDualCheckpoints = maybe")
    text += "a1.configfilters = f1\na1.snks = k9\na1.sources.r1.maxTotalEvents = ${sys:events}\n"
    told = problems_of(text)
    assert told[0] == "line 10: a1.sources.r1.batchSiez: is not known; did you mean 'batchSize'?"
    assert told[1] == "line 23: a1.channels.c1.useDualCheckpoints: must be true or false, got 'maybe'"
    assert told[2].startswith("line 33: a1.sinks.k3.type: no such type 'hive'")
    assert told[3].startswith("line 42: a1.configfilters: filters of Flume are not supported")
    assert told[4] == "line 43: a1.snks: is not known; did you mean 'sinks'?"
    assert told[5].startswith("line 44: a1.sources.r1.maxTotalEvents: ${sys:events} is a Java system property")


def test_unknown_keys_can_be_passed_over() -> None:
    """With ``ignore_unknown``, unknown keys, unlisted components and repeated keys give notes."""
    text = FLUME + "a1.sources.r1.threads = 4\na1.sinks.old.type = null\na1.sinks.k1.channel = c1\n"
    config = parse_flume(text, "a1", ignore_unknown=True)
    draw(config)
    assert config.notes == (
        "line 29: a1.sinks.k1.channel is repeated in line 44, whose value counts",
        "line 43: a1.sinks.old is not listed in a1.sinks; ignored",
        (
            "line 42: a1.sources.r1.threads is not known; ignored; there are"
            " batchSize, maxEventsPerSecond, maxTotalEvents, size"
        ),
    )
    assert problems_of(text) == [
        "line 42: a1.sources.r1.threads: is not known; there are batchSize, maxEventsPerSecond, maxTotalEvents, size"
    ]


def test_converted_toml_gives_the_same_agent(tmp_path: Path) -> None:
    """``convert`` writes the same configuration, with references kept."""
    path = tmp_path / "flume.properties"
    path.write_text(FLUME)
    text, notes, problems = convert(path, "a1")
    assert 'max_total_events = "${env:EVENTS}"' in text
    assert notes == problems == ()
    converted, original = parse_toml(text), parse_flume(FLUME, "a1")
    assert converted.problems == ()
    options = {**converted.sources["r1"].options, "max_total_events": 7}
    assert replace(converted, sources={"r1": replace(converted.sources["r1"], options=options)}) == original
    draw(converted)


def test_convert_writes_no_empty_table(tmp_path: Path) -> None:
    """``convert`` leaves out a table without keys, such as the times of an extractor that parses none."""
    path = tmp_path / "flume.properties"
    extractor = "interceptors.x.type = regex_extractor\n{}regex = (x)\n{}serializers = s\n{}serializers.s.name = n"
    lines = extractor.replace("{}", "a1.sources.r1.interceptors.x.")
    size = "a1.sources.r1.batchSize = 100"
    path.write_text(FLUME.replace(size, f"{size}\na1.sources.r1.interceptors = x\na1.sources.r1.{lines}"))
    text, _, _ = convert(path, "a1")
    assert 'headers = ["n"]' in text
    assert "times" not in text


def test_settings_that_convert_leaves_out_are_comments(tmp_path: Path) -> None:
    """Unknown keys and types, idle components and unconvertible units are comments of the converted file."""
    path = tmp_path / "flume.properties"
    text = FLUME.replace("15000", "${env:CHECKPOINT}").replace("k3.type = logger", "k3.type = hive")
    path.write_text(text + "a1.sinks.old.type = null\na1.sources.r1.threads = 4\na1.channels.c2.keep-alive = 3s\n")
    text, notes, problems = convert(path, "a1")
    assert all(f"# * {note}" in text.splitlines() for note in (*notes, *problems))
    assert any("a1.sinks.old is not listed in a1.sinks" in note for note in notes)
    assert any("a1.sources.r1.threads is not known" in note for note in notes)
    assert any("a1.channels.c1.checkpointInterval = ${env:CHECKPOINT}" in note for note in notes)
    assert problems == (
        (
            "line 33: a1.sinks.k3.type: no such type 'hive': it exists in Flume only; use objects, whose files"
            " Hive reads"
        ),
        (
            "line 44: a1.channels.c2.keep-alive: must be a number, at least 0, got '3s'; write it without a unit:"
            " seconds that a put waits for room"
        ),
    )
    assert parse_toml(text).sinks["k3"].type == "hive"


def test_interceptors_keep_their_order_and_names() -> None:
    """Interceptors keep the order of their list, and ``$Builder`` classes get our type names."""
    text = (
        "x.sources = s\nx.sources.s.type = seq\nx.sources.s.channels = c\nx.sources.s.interceptors = b a\n"
        "x.sources.s.interceptors.a.type = org.apache.flume.interceptor.TimestampInterceptor$Builder\n"
        "x.sources.s.interceptors.b.type = static\n"
    )
    config = parse_flume(text)
    assert config.sources["s"].interceptors == (
        ComponentConfig("b", "static", config.sources["s"].interceptors[0].options),
        ComponentConfig("a", "timestamp", config.sources["s"].interceptors[1].options),
    )
