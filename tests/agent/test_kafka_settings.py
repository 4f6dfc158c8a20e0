"""Invalid settings of Kafka's client are reported before anything starts."""

import logging
from pathlib import Path
from typing import Any

import pytest

from producer.agent.config.options import AgentConfigError, read_options
from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import SinkError
from producer.agent.protocols.kafka import ClientLog
from producer.agent.sinks.kafka import KafkaSink
from producer.agent.sources.kafka import KafkaSource
from producer.model.errors import ConfigError
from producer.testing import ManualClock

from .doubles import context

_SINK: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "topic": "t"}
_SOURCE: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "topics": ["t"]}


def _problem(cls: Any, given: dict[str, Any], **config: str) -> str:
    with pytest.raises(AgentConfigError) as caught:
        read_options(cls.Options, {**given, "config": config}, "x")
    (problem,) = caught.value.problems
    assert problem.key == "config"
    return problem.message


@pytest.mark.parametrize("acks", [{"acks": "1"}, {"request.required.acks": "0"}])
def test_fewer_replicas_may_acknowledge(tmp_path: Path, acks: dict[str, str]) -> None:
    """``acks = 1``, common in Flume's files, turns idempotence off, which the client would refuse with it."""
    sink = KafkaSink(KafkaSink.Options(**_SINK, config=acks), context(tmp_path))
    sink.close()


@pytest.mark.parametrize("acks", [{}, {"acks": "all"}, {"acks": "-1"}])
def test_all_replicas_acknowledge_and_the_client_has_numbers(acks: dict[str, str]) -> None:
    """By default all replicas acknowledge, and retries of the client are stored once."""
    settings = KafkaSink.Options(**_SINK, config=acks).settings("c")
    assert settings["enable.idempotence"] is True
    assert settings["acks"] in ("all", "-1")


def test_an_unknown_setting_of_source_or_sink_is_reported_by_its_name_such_as_one_of_javas_key_stores() -> None:
    """An unknown setting of source or sink is reported by its name, such as one of Java's key stores."""
    assert 'No such configuration property: "no.such"' in _problem(KafkaSource, _SOURCE, **{"no.such": "x"})
    assert 'No such configuration property: "no.such"' in _problem(KafkaSink, _SINK, **{"no.such": "x"})
    assert "Java TrustStores" in _problem(KafkaSink, _SINK, **{"ssl.truststore.location": "/t.jks"})


def test_an_invalid_value_is_reported_without_the_value_which_may_be_a_secret() -> None:
    """An invalid value is reported without the value, which may be a secret."""
    message = _problem(KafkaSource, _SOURCE, **{"auto.offset.reset": "hush"})
    assert '"auto.offset.reset"' in message
    assert "hush" not in message


@pytest.mark.parametrize(("cls", "given"), [(KafkaSource, _SOURCE), (KafkaSink, _SINK)])
def test_a_missing_file_is_a_missing_resource_of_this_machine_the_configuration_is_valid(
    cls: Any, given: dict[str, Any], tmp_path: Path
) -> None:
    """A missing file is a missing resource of this machine; the configuration is valid."""
    path = str(tmp_path / "ca.pem")
    tls = {"security.protocol": "ssl", "ssl.ca.location": path}
    options = read_options(cls.Options, {**given, "config": tls}, "x")
    (missing,) = options.missing()
    assert isinstance(missing, ConfigError)
    assert (missing.name, missing.value) == ("config.ssl.ca.location", path)


def test_a_broker_that_is_away_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The client's many failed attempts give one log line in ten seconds."""
    clock = ManualClock()
    log = ClientLog(clock)
    failed = "%s [%s] [thrd:127.0.0.1:1/bootstrap]: 127.0.0.1:1/bootstrap: Connect failed (after %sms in state CONNECT)"
    for number in range(20):
        log.log(logging.ERROR, failed, "FAIL", "a-s#producer-2", number)
    log.log(logging.WARNING, "another matter")
    clock.advance(10)
    log.log(logging.ERROR, failed, "FAIL", "a-s#producer-2", 7)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "ERROR"]
    assert "FAIL [a-s#producer-2]" in caplog.messages[0]
    assert caplog.messages[2].endswith("(19 times more since the last line about it)")


def test_the_clients_of_source_and_sink_have_that_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Clients of source and sink log a missing broker once."""
    sink = KafkaSink(KafkaSink.Options(**_SINK, timeout=1), context(tmp_path))
    with pytest.raises(SinkError):
        sink.write([EventBatch.of_lines(b"a\n")])
    sink.close()
    assert _refusals(caplog) == 1
    consumer = KafkaSource(KafkaSource.Options(**_SOURCE), context(tmp_path))._consumer()
    consumer.subscribe(["t"])
    caplog.clear()
    for _ in range(20):
        consumer.poll(0.05)
    consumer.close()
    assert _refusals(caplog) <= 1


def _refusals(caplog: pytest.LogCaptureFixture) -> int:
    """Count the agent's log lines about refused connections; another test's client may log, too."""
    own = [record.getMessage() for record in caplog.records if record.name == "loghub.agent.kafka"]
    return sum("Connection refused" in message for message in own)
