"""The sink ``loghub``: each batch exactly once, in the configured form."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.agent.config.options import AgentConfigError, read_options
from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import RefusedError, SinkError
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.health import Health
from producer.agent.flow.sink_runner import SinkRunner
from producer.agent.sinks import loghub_pieces
from producer.agent.sinks.loghub import LogHubSink
from producer.server import LogHubServer
from producer.server.faults import ApiRequest, Refuse, answer, drop_answer
from producer.testing import ManualClock
from tests.support.aliyun import aliyun

from ..doubles import context, file_channel, opened


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer() as made:
        yield made


class _Sinks:
    def __init__(self, server: LogHubServer, state: Path) -> None:
        self._server, self._state = server, state
        self._made: list[LogHubSink] = []

    def __call__(self, **options: Any) -> LogHubSink:
        given = {
            "project": "p",
            "logstore": "l",
            "endpoint": self._server.endpoint,
            "access_key_id": self._server.access_key_id,
            "access_key_secret": self._server.access_key_secret,
            "retries": 0,
            **options,
        }
        self._made.append(LogHubSink(LogHubSink.Options(**given), context(self._state, "k")))
        return self._made[-1]

    def close(self) -> None:
        for sink in self._made:
            sink.close()


@pytest.fixture
def sinks(server: LogHubServer, tmp_path: Path) -> Iterator[_Sinks]:
    made = _Sinks(server, tmp_path)
    yield made
    made.close()


def _stored(server: LogHubServer) -> list[str]:
    return [dict(log.contents)["content"] for log in server.logs("p", "l")]


def test_lines_become_logs(server: LogHubServer, sinks: _Sinks) -> None:
    """The body is a field, shared headers are tags, and the time is the header's."""
    sinks(topic="t").write([EventBatch.of_lines(b"a\r\n\xff\n", {"host": "h", "timestamp": "1700000000123"})])
    logs = list(server.logs("p", "l"))
    assert [dict(log.contents) for log in logs] == [{"content": "a"}, {"content": "\\xff"}]
    assert {log.time for log in logs} == {1_700_000_000}
    (group,) = server.log_groups("p", "l")
    assert (group.topic, group.tags["host"]) == ("t", "h")


def test_headers_of_single_events_become_fields(server: LogHubServer, sinks: _Sinks) -> None:
    """Headers of single events become fields beside any body, or are dropped if columns = none."""
    batch = EventBatch.of_events([({"n": "1", "host": "h"}, b"a\nb"), ({"host": "h"}, b"c")])
    sinks().write([batch])
    sinks(headers="fields", columns="none", logstore="other", field="text").write([batch])
    assert [dict(log.contents) for log in server.logs("p", "l")] == [{"content": "a\nb", "n": "1"}, {"content": "c"}]
    other = [dict(log.contents) for log in server.logs("p", "other")]
    assert other == [{"text": "a\nb", "host": "h"}, {"text": "c", "host": "h"}]


def _filled(channel: BatchChannel, batches: int) -> list[str]:
    for number in range(batches):
        channel.put(EventBatch.of_lines(b"%d\n" % number, {"kind": str(number % 2)}))
    return [str(number) for number in range(batches)]


def _deliver(channel: BatchChannel, sink: LogHubSink, letters: BatchChannel | None = None) -> bool:
    runner = SinkRunner("k", channel, sink, Health(), dead_letters=letters, most_events=1000, most_bytes=1 << 20)
    try:
        return runner.deliver(0)
    finally:
        for taking in {id(one.delivery): one.delivery for one in runner._held_back._waiting}.values():
            taking.rollback()  # like a crash


def _deliver_all(channel: BatchChannel, sink: LogHubSink, letters: BatchChannel | None) -> None:
    tries = 0
    while channel.held:
        _deliver(channel, sink, letters)
        tries += 1
        assert tries < 100


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_lost_answer_stores_nothing_twice(server: LogHubServer, sinks: _Sinks, tmp_path: Path, lanes: int) -> None:
    """A batch whose answer was lost is delivered again, and each line is stored once."""
    with opened(file_channel(tmp_path)) as channel:
        wanted = _filled(channel, 20)
        server.faults.add(drop_answer(), probability=0.3, seed=7, operation="PutLogs")
        sink, tries = sinks(lanes=lanes), 1
        while not _deliver(channel, sink) or channel.held:
            tries += 1
        assert tries > 2
    assert sorted(_stored(server)) == sorted(wanted)


def test_a_batch_stored_before_a_crash_without_its_commit_is_delivered_again_and_not_stored_twice(
    server: LogHubServer, sinks: _Sinks, tmp_path: Path
) -> None:
    """A batch stored before a crash, without its commit, is delivered again and not stored twice."""
    with opened(file_channel(tmp_path)) as channel:
        wanted = _filled(channel, 9)
        taking = channel.take(1000, 1 << 20, 0)
        assert taking is not None
        sinks().write(taking.batches[:5])
        taking.rollback()  # like a crash
    with opened(file_channel(tmp_path)) as channel:
        assert _deliver(channel, sinks())
        assert channel.held == 0
    assert Counter(_stored(server)) == Counter(wanted)


def test_one_lane_keeps_the_order(server: LogHubServer, sinks: _Sinks, tmp_path: Path) -> None:
    """With lanes = 1 the order is kept, also across failures."""
    with opened(file_channel(tmp_path)) as channel:
        wanted = _filled(channel, 12)
        server.faults.add(answer(500, "InternalServerError"), probability=0.3, seed=3, operation="PutLogs")
        sink = sinks(lanes=1)
        while not _deliver(channel, sink) or channel.held:
            pass
    assert _stored(server) == wanted


@pytest.mark.parametrize("buried", [True, False])
def test_behind_a_refused_batch_nothing_is_taken_for_stored(
    server: LogHubServer, sinks: _Sinks, tmp_path: Path, *, buried: bool
) -> None:
    """A waiting refused batch has no number, and is stored once it is accepted, even after a crash."""
    server.faults.add(answer(400, "InvalidFormat"), times=1 if buried else 2, operation="PutLogs")
    with opened(file_channel(tmp_path)) as channel, opened(file_channel(tmp_path, "letters")) as letters:
        wanted = _filled(channel, 6)
        _deliver_all(channel, sinks(lanes=1), letters if buried else None)
        assert letters.held == buried
    assert sorted(_stored(server)) == (wanted[1:] if buried else wanted)


#: The body of an event that the service refuses; a body of the same size is refused, too.
_BAD = "bad" * 500


def _refuses_bad(server: LogHubServer, code: str = "ParameterInvalid") -> None:
    def refuse(request: ApiRequest) -> Refuse | None:
        holds = int(request.headers["x-log-bodyrawsize"]) > len(_BAD)
        return Refuse(status=400, code=code, message="no good") if holds else None

    server.faults.add(refuse, operation="PutLogs")


def _put_some_bad(channel: BatchChannel) -> list[str]:
    """Put batches with some refused events; return the other bodies."""
    lines = [str(number) for number in range(36)]
    for start in range(0, 36, 6):
        bad = {12: [13], 18: [18, 22], 24: range(24, 30)}.get(start, [])
        events = [lines[n] + _BAD if n in bad else lines[n] for n in range(start, start + 6)]
        channel.put(EventBatch.of_lines("\n".join(events).encode()))
    return [line for line in lines if int(line) not in {13, 18, 22, *range(24, 30)}]


@pytest.mark.parametrize("code", ["ParameterInvalid", "PostBodyTooLarge"])
@pytest.mark.parametrize("lanes", [1, 4])
def test_only_the_events_that_the_service_refuses_are_dead_letters(
    server: LogHubServer, sinks: _Sinks, tmp_path: Path, lanes: int, code: str
) -> None:
    """Refused events are dead letters; all others are stored once and in order, across lost answers and a crash."""
    _refuses_bad(server, code)
    server.faults.add(drop_answer(), probability=0.2, seed=7, operation="PutLogs")
    with opened(file_channel(tmp_path)) as channel, opened(file_channel(tmp_path, "letters")) as letters:
        good = _put_some_bad(channel)
        taking = channel.take(1000, 1 << 20, 0)
        assert taking is not None
        with pytest.raises((RefusedError, SinkError)):
            sinks(lanes=lanes).write(taking.batches)
        taking.rollback()  # like a crash
        _deliver_all(channel, sinks(lanes=lanes), letters)
        dead = letters.take(100, 1 << 20, 0)
        assert dead is not None
        found = [(headers["dead_letter_reason"], body) for each in dead.batches for headers, body in each.events()]
        dead.rollback()
    assert len(found) == 9
    assert all(body.endswith(_BAD.encode()) and code in reason and "no good" in reason for reason, body in found)
    assert (_stored(server) if lanes == 1 else sorted(_stored(server), key=int)) == good


def test_without_dead_letters_events_that_the_service_refuses_hold_no_others_up(
    server: LogHubServer, sinks: _Sinks, tmp_path: Path
) -> None:
    """Without dead letters refused events wait, and are stored once the service accepts them; nothing is repeated."""
    _refuses_bad(server)
    with opened(file_channel(tmp_path)) as channel:
        good, clock = _put_some_bad(channel), ManualClock()
        limits = {"most_events": 1000, "most_bytes": 1 << 20}
        runner = SinkRunner("k", channel, sinks(lanes=2), Health(clock), dead_letters=None, **limits)
        for _ in range(20):
            assert runner.deliver(0)
        assert sorted(_stored(server), key=int) == good
        server.faults.clear()
        clock.advance(60)
        runner.deliver(0)
        assert channel.held == 0
    assert sorted(int(line.removesuffix(_BAD)) for line in _stored(server)) == list(range(36))


def test_if_the_second_request_of_a_batch_is_refused_the_first_is_not_stored_again(
    server: LogHubServer, sinks: _Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the second request of a batch is refused, the first is not stored again."""
    monkeypatch.setattr(loghub_pieces, "_PIECE_LOGS", 4)
    _refuses_bad(server)
    lines = [_BAD if number == 6 else str(number) for number in range(12)]
    with opened(file_channel(tmp_path)) as channel, opened(file_channel(tmp_path, "letters")) as letters:
        channel.put(EventBatch.of_lines("\n".join(lines).encode()))
        assert _deliver(channel, sinks(), letters)
        assert (channel.held, letters.held) == (0, 1)
    assert _stored(server) == [line for line in lines if line != _BAD]


def test_if_the_service_refuses_everything_only_the_first_hundred_events_are_sent_alone(
    server: LogHubServer, sinks: _Sinks, tmp_path: Path
) -> None:
    """If the service refuses everything, only the first hundred events are sent alone, and the rest in large parts."""
    server.faults.add(answer(400, "ParameterInvalid"), operation="PutLogs")
    with opened(file_channel(tmp_path)) as channel, opened(file_channel(tmp_path, "letters", capacity=9999)) as letters:
        channel.put(EventBatch.of_lines(b"x\n" * 4000))
        assert _deliver(channel, sinks(), letters)
        assert (channel.held, letters.held) == (0, 4000)
    assert len(server.requests) < 300


@pytest.mark.parametrize(
    ("code", "body"),
    [("SomeProxy", b"<html>not here"), ("ProjectForbidden", None), ("LogStoreNotExist", None)],
    ids=["another's page", "forbidden", "no logstore"],
)
def test_a_refusal_that_an_operator_can_fix_or_that_is_not_loghubs_is_retried(
    server: LogHubServer, sinks: _Sinks, code: str, body: bytes | None
) -> None:
    """A refusal that an operator can fix, or that is not LogHub's, is retried."""
    server.faults.add(lambda _: Refuse(status=400, code=code, body=body), operation="PutLogs")
    with pytest.raises(SinkError, match=code if body is None else "BadResponse") as raised:
        sinks().write([EventBatch.of_lines(b"a\nb\n")])
    assert not isinstance(raised.value, RefusedError)


def _unfit() -> dict[str, EventBatch]:
    """Return batches of three events whose middle one can never become a log."""
    large = b"x" * (9 << 20)
    return {
        "a line that is too large": EventBatch.of_lines(b"0\n" + large + b"\n2\n"),
        "a body that is too large": EventBatch.of_events([({"n": "0"}, b"0"), ({"n": "1"}, large), ({}, b"2")]),
    }


@pytest.mark.parametrize("dead_letters", [True, False], ids=["dead letters", "none"])
@pytest.mark.parametrize("name", _unfit())
def test_an_event_that_no_request_can_carry_is_refused_alone(
    server: LogHubServer, sinks: _Sinks, tmp_path: Path, name: str, *, dead_letters: bool
) -> None:
    """An unfit event goes to the dead letters, or is dropped without them; the others arrive once."""
    with opened(file_channel(tmp_path)) as channel, opened(file_channel(tmp_path, "letters")) as letters:
        channel.put(_unfit()[name])
        channel.put(EventBatch.of_lines(b"3\n"))
        sink = sinks(lanes=1)
        while channel.held:
            assert _deliver(channel, sink, letters if dead_letters else None)
        assert letters.held == dead_letters
    assert _stored(server) == ["0", "2", "3"]


def test_an_event_that_no_request_can_carry_is_a_dead_letter_once(
    server: LogHubServer, sinks: _Sinks, tmp_path: Path
) -> None:
    """An unfit event is one dead letter, even if its batch is retried for as long as the service is down."""
    batch = _unfit()["a body that is too large"]
    with opened(file_channel(tmp_path)) as channel, opened(file_channel(tmp_path, "letters")) as letters:
        channel.put(batch)
        sink, fault = sinks(), server.faults.add(answer(500, "InternalServerError"), operation="PutLogs")
        assert not _deliver(channel, sink, letters)
        assert not _deliver(channel, sink, letters)
        server.faults.remove(fault)
        assert _deliver(channel, sink, letters)
        assert (channel.held, letters.held) == (0, 1)
    assert _stored(server) == ["0", "2"]


def test_a_batch_of_more_requests_than_it_has_numbers_is_refused(
    server: LogHubServer, sinks: _Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch with more requests than numbers is refused as a whole: no retry, and no part is stored."""
    monkeypatch.setattr(loghub_pieces, "MOST_PIECES", 2)
    with opened(file_channel(tmp_path)) as channel, opened(file_channel(tmp_path, "letters")) as letters:
        channel.put(EventBatch.of_bodies([b"never"] * 3, {"n": "x" * (2 << 20)}))
        channel.put(EventBatch.of_lines(b"1\n"))
        while channel.held:
            assert _deliver(channel, sinks(headers="fields"), letters)
        assert letters.held == 3
    assert _stored(server) == ["1"]


@pytest.mark.parametrize("headers", ["tags", "fields"])
def test_bytes_that_are_not_utf_8_in_a_headers_name_or_value_are_stored_as_backslash_escapes(
    server: LogHubServer, sinks: _Sinks, tmp_path: Path, headers: str
) -> None:
    """Bytes that are not UTF-8 in a header's name or value are stored as backslash escapes."""
    odd, shown = "caf\udce9", "caf\\xe9"
    with opened(file_channel(tmp_path)) as channel:
        channel.put(EventBatch.of_bodies([b"alone"], {odd: odd}))
        channel.put(EventBatch.of_bodies([b"0", b"1"], columns={"n": ["x", odd], odd: ["y", None]}))
        assert _deliver(channel, sinks(headers=headers))
    logs = {log.fields["content"]: log for log in server.logs("p", "l")}
    alone = logs["alone"].fields if headers == "fields" else logs["alone"].tags
    assert (alone[shown], logs["0"].fields[shown], logs["1"].fields["n"]) == (shown, "y", shown)


@pytest.mark.parametrize("tags", [{"t": "x" * 5000}], ids=["too long"])
def test_events_whose_tags_do_not_fit_a_request_go_to_the_dead_letters_events_of_all_lanes_arrive(
    server: LogHubServer, sinks: _Sinks, tmp_path: Path, tags: dict[str, str]
) -> None:
    """Events whose tags do not fit a request go to the dead letters; events of all lanes arrive."""
    with opened(file_channel(tmp_path)) as channel, opened(file_channel(tmp_path, "letters")) as letters:
        wanted = _filled(channel, 3)
        channel.put(EventBatch.of_lines(b"never\n", tags))
        wanted += _filled(channel, 3)
        assert _deliver(channel, sinks(), letters)
        assert (channel.held, letters.held) == (0, 1)
    assert sorted(_stored(server)) == sorted(wanted)


def test_a_header_that_is_called_like_the_field_of_bodies_does_not_replace_them(
    server: LogHubServer, sinks: _Sinks
) -> None:
    """A header with the name of the body's field is kept under another name."""
    sinks().write([EventBatch.of_events([({"content": "a header"}, b"a"), ({}, b"b")])])
    assert [dict(log.contents) for log in server.logs("p", "l")] == [
        {"content": "a", "header_content": "a header"},
        {"content": "b"},
    ]


def test_an_invalid_time_also_one_with_very_many_digits_is_replaced_by_the_time_of_delivery(
    server: LogHubServer, sinks: _Sinks
) -> None:
    """An invalid time, also one with very many digits, is replaced by the time of delivery; nanoseconds are valid."""
    stamps = {"a": "9" * 5000, "b": "1700000000000", "c": str(2**32 * 1000), "d": "1700000000000000009"}
    sinks().write([EventBatch.of_events([({"timestamp": stamp}, body.encode()) for body, stamp in stamps.items()])])
    times = {dict(log.contents)["content"]: log.time for log in server.logs("p", "l")}
    assert times["b"] == times["d"] == 1_700_000_000 < times["a"] == times["c"]


def test_events_stay_in_the_channel_if_the_key_is_wrong_or_the_logstore_is_missing(
    server: LogHubServer, sinks: _Sinks
) -> None:
    """With a wrong key or a missing logstore events stay in the channel, and the message has the reason."""
    with pytest.raises(SinkError, match=r"LogStoreNotExist|Unauthorized|SignatureNotMatch") as raised:
        sinks(access_key_secret="wrong").write([EventBatch.of_lines(b"a\n")])
    assert not isinstance(raised.value, RefusedError)
    assert "wrong" not in str(raised.value)


def test_a_block_of_many_short_lines_goes_in_several_requests(server: LogHubServer, sinks: _Sinks) -> None:
    """Many short lines are sent in several requests within the service's limits, each with a number."""
    lines = b"".join(b"%d\n" % number for number in range(100_000))
    sinks().write([EventBatch.of_lines(lines).numbered(5, "origin")])
    sinks().write([EventBatch.of_lines(lines).numbered(5, "origin")])
    assert server.count("p", "l") == 100_000


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"project": "??"}, "project: must be lower-case letters"),
        ({"logstore": "Hosts"}, "logstore: must be lower-case letters"),
        ({"endpoint": "ftp://x"}, "endpoint: "),
        ({"sign_version": "v4"}, "region: "),
        ({"access_key_id": ""}, "access_key_id: "),
        ({"access_key_id": None}, "access_key_id: is missing"),
        ({"access_key_id": None, "access_key_secret": None}, "credentials: give either access_key_id and "),
        ({"credentials": "oidc"}, "credentials: give either access_key_id and "),
        ({"access_key_id": None, "access_key_secret": None, "credentials": "hush"}, "credentials: must be default, "),
        ({"access_key_secret": "hush\n"}, "access_key_secret: "),
    ],
)
def test_the_producers_own_rules_for_options_apply_under_the_sinks_names_no_secret_is_shown(
    wrong: dict[str, str | None], rule: str
) -> None:
    """The producer's own rules for options apply, under the sink's names; no secret is shown."""
    right = {"project": "p", "logstore": "l", "endpoint": "http://x", "access_key_id": "i", "access_key_secret": "hush"}
    with pytest.raises(AgentConfigError) as raised:
        read_options(
            LogHubSink.Options,
            {name: value for name, value in {**right, **wrong}.items() if value is not None},
            "sinks.k",
        )
    assert f"sinks.k.{rule}" in str(raised.value)
    assert "hush" not in str(raised.value)


def test_the_key_comes_from_the_source_that_the_configuration_names(
    sinks: _Sinks, server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``credentials`` the configuration has no key: the instance's role signs."""
    with aliyun(monkeypatch) as service:
        service.accepted_by(server)
        sinks(credentials="ecs-ram-role", access_key_id=None, access_key_secret=None).write(
            [EventBatch.of_lines(b"x\n")]
        )
    assert _stored(server) == ["x"]
    assert service.sessions == 1


@pytest.mark.parametrize("known_first", [True, False])
def test_batches_with_and_without_a_channels_number_use_different_keys(
    server: LogHubServer, sinks: _Sinks, *, known_first: bool
) -> None:
    """Batches with and without a channel's number use different keys, so none is taken for a stored one."""
    known = EventBatch.of_lines(b"known\n").numbered(5000, "origin")
    batches = [known, EventBatch.of_lines(b"unknown\n").numbered(7)]
    sinks(lanes=1).write(batches if known_first else batches[::-1])
    assert sorted(_stored(server)) == ["known", "unknown"]


def test_each_option_that_makes_other_requests_makes_another_key(sinks: _Sinks) -> None:
    """Each option that changes requests changes the key, so another encoding is not taken for a stored one."""
    others: list[dict[str, Any]] = [
        *({"field": "body"}, {"headers": "fields"}, {"columns": "none"}, {"time_header": None}, {"lanes": 2}),
        *({"project": "q"}, {"logstore": "m"}),
    ]
    keys = [sinks(**options)._hash_key("origin", 0) for options in ({}, *others)]
    assert len({*keys, sinks()._hash_key("origin", 1), sinks()._hash_key("another", 0)}) == len(others) + 3
    assert sinks()._hash_key("origin", 0) == keys[0]


def test_an_endpoint_of_another_project_has_the_sinks_credentials_or_its_own() -> None:
    """A table in ``endpoints`` is another project with the sink's key, or its own; its key is shown nowhere."""
    right = {"project": "p", "logstore": "l", "access_key_id": "i", "access_key_secret": "hush"}

    def read(**table: object) -> LogHubSink.Options:
        there = {"endpoint": "http://b", "project": "q", **table}
        return read_options(LogHubSink.Options, {**right, "endpoints": ["http://a", there]}, "sinks.k")

    _, same = read(region="r").account().at_each_endpoint()
    assert (same.project, same.region, same.credentials.get_credentials().access_key_id) == ("q", "r", "i")
    options = read(access_key_id="j", access_key_secret="silent")
    assert options.account().at_each_endpoint()[1].credentials.get_credentials().access_key_id == "j"
    assert "silent" not in f"{options!r}{options.account()!r}"
    for wrong, rule in (
        ({"access_key_id": "silent"}, "sinks.k.endpoints: access_key_secret of 'q': is missing"),
        ({"projekt": "silent"}, "sinks.k.endpoints: projekt of 'q': unknown option; did you mean project?"),
        ({"project": ""}, "sinks.k.endpoints: project of '': must be"),
        ({"endpoint": 7}, "sinks.k.endpoints: must be a list of text and tables"),
    ):
        with pytest.raises(AgentConfigError) as raised:
            read(**wrong)
        assert rule in str(raised.value)
        assert "silent" not in str(raised.value)


def test_a_later_endpoint_takes_over_and_repeats_nothing_when_added(server: LogHubServer, sinks: _Sinks) -> None:
    """With several endpoints the first that answers gets the events; a later endpoint changes no key."""
    two = sinks(endpoint="", endpoints=("http://127.0.0.1:1", server.endpoint), retries=5)
    two.write([EventBatch.of_lines(b"once\n").numbered(5000, "origin")])
    assert _stored(server) == ["once"]
    assert two._hash_key("origin", 0) == sinks(endpoint="http://127.0.0.1:1")._hash_key("origin", 0)
