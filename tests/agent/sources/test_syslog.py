"""syslog_tcp and syslog_udp."""

import logging
import socket
from datetime import UTC, datetime
from logging.handlers import SysLogHandler

import pytest

from producer.agent import AgentConfigError
from producer.agent.config.options import from_flume
from producer.agent.config.registry import canonical, class_of
from producer.agent.sources.syslog_events import FIELDS, SyslogParser
from producer.testing import ManualClock
from tests.agent.sources.listeners import all_of, serving
from tests.support.waiting import eventually

_NOW = datetime(2024, 3, 1, 12, tzinfo=UTC).timestamp()


def _events(*messages, keep=(), **options):
    return list(SyslogParser(keep, ManualClock(_NOW)).batch(list(messages), **options).events())


def _ms(*parts):
    return str(int(datetime(*parts).timestamp() * 1000))


@pytest.mark.parametrize(
    ("message", "headers", "body"),
    [
        (
            b"<34>Oct 11 22:14:15 mymachine su[7]: failed",
            {"Facility": "4", "Severity": "2", "timestamp": _ms(2023, 10, 11, 22, 14, 15), "host": "mymachine"},
            b"su[7]: failed",
        ),
        (
            b"<13>Feb 29 00:00:00 h leap",
            {"Facility": "1", "Severity": "5", "timestamp": _ms(2024, 2, 29), "host": "h"},
            b"leap",
        ),
        (
            b"<165>1 2003-10-11T22:14:15.003Z host app - ID47 - \xef\xbb\xbfmsg",
            {"Facility": "20", "Severity": "5", "timestamp": "1065910455003", "host": "host"},
            b"app - ID47 - \xef\xbb\xbfmsg",
        ),
        (
            b"<34>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc - - %% It's time",
            {"Facility": "4", "Severity": "2", "timestamp": "1061727255000", "host": "192.0.2.1"},
            b"myproc - - %% It's time",
        ),
        (b"<10>1 - - app - - -", {"Facility": "1", "Severity": "2"}, b"app - - -"),
        (
            b"<013>2024-01-02T03:04:05+01:00 h x",
            {"Facility": "1", "Severity": "5", "timestamp": "1704161045000", "host": "h"},
            b"x",
        ),
        (b"<0>anything", {"Facility": "0", "Severity": "0"}, b"anything"),
        (b"<13>", {"Facility": "1", "Severity": "5"}, b""),
        (b"<192>too much", {"flume.syslog.status": "Invalid"}, b"<192>too much"),
        (b"<1234>x", {"flume.syslog.status": "Invalid"}, b"<1234>x"),
        (b"<>x", {"flume.syslog.status": "Invalid"}, b"<>x"),
        (b"no priority \xff", {"flume.syslog.status": "Invalid"}, b"no priority \xff"),
        (b"<13>Feb 31 00:00:00 h x", {"Facility": "1", "Severity": "5", "host": "h"}, b"x"),
    ],
)
def test_messages_become_events(message, headers, body):
    """Headers and bodies of RFC 3164, RFC 5424 and other messages are Flume's, with a full year, and any bytes."""
    assert _events(message) == [(headers, body)]
    other = b"<14>other"
    assert _events(message, other)[0] == (headers, body)


@pytest.mark.parametrize(
    ("keep", "body"),
    [
        (FIELDS, b"<34>1 2003-08-24T05:14:15Z h a - - - m"),
        (("priority",), b"<34>a - - - m"),
        (("timestamp", "hostname"), b"2003-08-24T05:14:15Z h a - - - m"),
        (("version",), b"1 a - - - m"),
    ],
)
def test_keep_fields_keeps_the_named_fields_at_the_beginning_of_the_body_in_their_order(keep, body):
    """keep_fields keeps the named fields at the beginning of the body, in their order."""
    ((_, found),) = _events(b"<34>1 2003-08-24T05:14:15Z h a - - - m", keep=keep)
    assert found == body


def test_a_truncated_message_has_a_header_that_says_so():
    """A truncated message has a header that says so; other messages do not."""
    events = _events(b"<13>a", b"<13>b", cut=[1])
    assert [headers.get("flume.syslog.status") for headers, _ in events] == [None, "Incomplete"]


def test_the_messages_of_one_read_are_one_batch_a_header_with_one_value_is_shared():
    """The messages of one read are one batch; a header with one value is shared."""
    with serving("syslog_tcp", client_ip_header="ip", port_header="to") as served, served.connect() as peer:
        peer.sendall(b"<13>Oct 11 22:14:15 h a\r\n<14>Oct 11 22:14:15 h b\n\n")
        eventually(lambda: len(served.outlet.bodies) == 2)
        (batch,) = served.outlet.batches
        assert batch.bodies() == [b"a", b"b"]
        assert {"Facility", "host", "timestamp", "ip", "to"} == set(batch.shared)
        assert batch.columns == {"Severity": ["5", "6"]}
        assert (batch.shared["ip"], batch.shared["to"]) == ("127.0.0.1", str(served.address[1]))


def test_a_connection_that_begins_with_a_digit_uses_octet_counting_its_messages_may_contain_line_ends():
    """A connection that begins with a digit uses octet counting; its messages may contain line ends."""
    with serving("syslog_tcp") as served, served.connect() as peer:
        peer.sendall(b"7 <13>a\nb9 <14>")
        served.got(b"a\nb")
        peer.sendall(b"hello")
        served.got(b"a\nb", b"hello")


def test_a_message_of_pythons_own_handler_comes_while_the_connection_is_open():
    """Python's ``SysLogHandler`` ends messages with NUL; each is an event at once."""
    with serving("syslog_tcp") as served:
        handler = SysLogHandler(served.address, socktype=socket.SOCK_STREAM)
        for text in ("first", "second"):
            handler.emit(logging.makeLogRecord({"msg": f"app: {text}", "levelno": logging.INFO, "levelname": "INFO"}))
        served.got(b"app: first", b"app: second")
        handler.close()


def test_a_long_message_is_cut_and_the_next_one_is_right():
    """A message beyond event_size is truncated and marked; the next one is complete."""
    with serving("syslog_tcp", event_size=16) as served, served.connect() as peer:
        peer.sendall(b"<13>" + b"x" * 100 + b"\n<13>b\n<13>last")
        peer.shutdown(socket.SHUT_WR)
        assert all_of(peer) == b""
        served.got(b"x" * 12, b"b", b"last")
        marks = [headers.get("flume.syslog.status") for headers, _ in served.outlet.events]
        assert marks == ["Incomplete", None, "Incomplete"]


def test_with_ports_each_port_is_listened_on_and_a_header_has_the_port_of_a_message():
    """With ports each port is listened on, and a header has the port of a message."""
    with serving("syslog_tcp", port=None, ports="0 0", port_header="port") as served:
        for number, address in enumerate(served.source.addresses):
            with socket.create_connection(address) as peer:
                peer.sendall(b"<13>x\n")
                eventually(lambda n=number: len(served.outlet.batches) == n + 1)
        ports = [headers["port"] for headers, _ in served.outlet.events]
        assert ports == [str(port) for _, port in served.source.addresses]


def test_while_a_channel_is_full_a_connection_waits_and_loses_nothing():
    """While a channel is full the peer waits; later all its messages arrive in order."""
    lines = [b"<13>%06d %s" % (number, b"x" * 200) for number in range(20_000)]
    with serving("syslog_tcp") as served, served.connect() as peer:
        served.outlet.room.clear()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        peer.settimeout(0.1)
        block, sent = b"".join(line + b"\n" for line in lines), 0
        with pytest.raises(TimeoutError):  # noqa: PT012
            while sent < len(block):
                sent += peer.send(block[sent : sent + 65_536])
        assert served.outlet.bodies == []
        served.outlet.room.set()
        peer.settimeout(60)
        peer.sendall(block[sent:])
        eventually(lambda: sum(batch.count for batch in served.outlet.batches) == len(lines))
        assert served.outlet.bodies == [line[4:] for line in lines]


def test_garbage_ends_only_its_own_connection():
    """Invalid bytes become events without a priority, or end their own connection; others are served."""
    with serving("syslog_tcp") as served, served.connect() as good:
        with served.connect() as wrong:
            wrong.sendall(b"12x\0\xff")
            assert all_of(wrong) == b""
        with served.connect() as binary:
            binary.sendall(b"\1\xff\xfe\n")
            served.got(b"\1\xff\xfe")
        good.sendall(b"<13>a\n")
        served.got(b"\1\xff\xfe", b"a")


def test_datagrams_are_messages():
    """Each datagram is a message, with the sender as an optional header; an empty datagram is none."""
    with (
        serving("syslog_udp", client_ip_header="ip") as served,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
    ):
        for each in (b"<13>a\n", b"\n", b"\0", b"<14>Oct 11 22:14:15 h b\nc\0"):
            peer.sendto(each, served.address)
        served.got(b"a", b"b\nc")
        assert [(headers["Severity"], headers["ip"]) for headers, _ in served.outlet.events] == [
            ("5", "127.0.0.1"),
            ("6", "127.0.0.1"),
        ]


def test_the_options_of_flumes_three_syslog_sources_are_accepted():
    """The options of Flume's three syslog sources are accepted."""
    assert canonical("sources", "multiport_syslogtcp") == "syslog_tcp"
    texts = {
        "host": "0.0.0.0",
        "ports": "10001 10002",
        "portHeader": "port",
        "eventSize": "2500",
        "batchSize": "10",
        "keepFields": "priority version",
        "charset.default": "UTF-8",
        "clientIPHeader": "ip",
    }
    assert from_flume(class_of("sources", "syslog_tcp").Options, texts) == {
        "bind": "0.0.0.0",
        "ports": "10001 10002",
        "port_header": "port",
        "event_size": "2500",
        "keep_fields": "priority version",
        "client_ip_header": "ip",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": None}, "is missing: port, or ports"),
        ({"ports": "1 2"}, "must not be given together with ports"),
        ({"port": None, "ports": "70000"}, "from 0 to 65535"),
        ({"keep_fields": "priority pid"}, "must be none, all, or some of"),
    ],
)
def test_missing_port_and_ports_or_an_unknown_field_is_a_configuration_error(options, message):
    """Missing port and ports, or an unknown field, is a configuration error."""
    with pytest.raises(AgentConfigError, match=message), serving("syslog_tcp", **options):
        pass
