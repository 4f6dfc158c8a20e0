"""Parsers yield the fields of each format, and no line makes one raise or take long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.ship.errors import InputError
from producer.ship.lines.names import MAX_NAME_BYTES
from producer.ship.lines.parsers import PARSER_NAMES, Values, make_parser
from producer.ship.lines.parsers.delimited import checked_delimiter, header_names

_NAMED = [name for name in PARSER_NAMES if name != "regex"]

COMBINED = (
    '203.0.113.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=1 HTTP/1.0" 200 2326 '
    '"http://example.com/start" "Mozilla/4.08 [en] (\\"quoted\\")"'
)


def test_the_fields_of_the_common_format_and_of_the_request_are_found_and_is_left_out() -> None:
    """The fields of the common format and of the request are found, and ``-`` is left out."""
    line = '127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 -'
    assert make_parser("apache")(line) == {
        "remote_addr": "127.0.0.1",
        "time": "10/Oct/2000:13:55:36 -0700",
        "request": "GET /apache_pb.gif HTTP/1.0",
        "status": "200",
        "method": "GET",
        "uri": "/apache_pb.gif",
        "protocol": "HTTP/1.0",
    }


def test_combined_access_log_has_referer_and_user_agent() -> None:
    """Escaped quotes do not end a field, and the text after the known fields is kept."""
    fields = make_parser("apache")(COMBINED + " 0.003")
    assert fields is not None
    assert fields["referer"] == "http://example.com/start"
    assert fields["user_agent"] == 'Mozilla/4.08 [en] (\\"quoted\\")'
    assert fields["remote_user"] == "frank"
    assert fields["extra"] == "0.003"


def test_virtual_host_in_front_is_a_field() -> None:
    """An access log may begin with a virtual host and a port, as in Debian's default format."""
    fields = make_parser("apache")("example.org:443 " + COMBINED)
    assert fields is not None
    assert (fields["vhost"], fields["remote_addr"]) == ("example.org:443", "203.0.113.7")


def test_a_request_that_is_garbage_keeps_the_line_parsed() -> None:
    """A TLS hello in the request field yields the other fields, without a method."""
    fields = make_parser("apache")('1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "\\x16\\x03\\x01" 400 226')
    assert fields is not None
    assert fields["request"] == "\\x16\\x03\\x01"
    assert "method" not in fields


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "[Sun Dec 04 04:47:44 2005] [error] mod_jk child workerEnv in error state 6",
            {
                "time": "Sun Dec 04 04:47:44 2005",
                "level": "error",
                "message": "mod_jk child workerEnv in error state 6",
            },
            id="2.2",
        ),
        pytest.param(
            "[Sun Dec 04 05:15:09 2005] [error] [client 222.166.160.184] Directory index forbidden",
            {
                "time": "Sun Dec 04 05:15:09 2005",
                "level": "error",
                "client": "222.166.160.184",
                "message": "Directory index forbidden",
            },
            id="2.2 with a client",
        ),
        pytest.param(
            "[Fri Sep 09 10:42:29.902022 2011] [core:error] [pid 35708:tid 4328636416] [client 72.15.99.187:80] AH1",
            {
                "time": "Fri Sep 09 10:42:29.902022 2011",
                "module": "core",
                "level": "error",
                "pid": "35708",
                "tid": "4328636416",
                "client": "72.15.99.187:80",
                "message": "AH1",
            },
            id="2.4",
        ),
    ],
)
def test_apache_error_log(line: str, expected: dict[str, str]) -> None:
    """Error logs of Apache 2.2 and 2.4 have time, level, client and message."""
    assert make_parser("apache")(line) == expected


_REFUSED = (
    "2026/01/31 12:00:00 [error] 31#32: *17 connect() failed (111: Connection refused) while connecting to upstream, "
    'client: 192.0.2.1, server: _, request: "GET /, host: "x" HTTP/1.1", upstream: "http://127.0.0.1:8080/", '
    'host: "example.org", referrer: "http://example.org/a"'
)


@pytest.mark.parametrize("parser", ["apache", "auto"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            _REFUSED,
            {
                "time": "2026/01/31 12:00:00",
                "level": "error",
                "pid": "31",
                "tid": "32",
                "connection": "17",
                "message": "connect() failed (111: Connection refused) while connecting to upstream",
                "client": "192.0.2.1",
                "server": "_",
                "request": 'GET /, host: "x" HTTP/1.1',
                "upstream": "http://127.0.0.1:8080/",
                "host": "example.org",
                "referrer": "http://example.org/a",
            },
            id="of a request",
        ),
        pytest.param(
            "2026/01/31 12:00:00 [notice] 1#1: start worker process 29",
            {
                "time": "2026/01/31 12:00:00",
                "level": "notice",
                "pid": "1",
                "tid": "1",
                "message": "start worker process 29",
            },
            id="of the server",
        ),
        pytest.param(
            '2026/01/31 12:00:00 [info] 1#1: *2 done, client: 192.0.2.1, server: , request: ""',
            {
                "time": "2026/01/31 12:00:00",
                "level": "info",
                "pid": "1",
                "tid": "1",
                "connection": "2",
                "message": "done",
                "client": "192.0.2.1",
            },
            id="empty values",
        ),
        pytest.param(
            '2026/01/31 12:00:00 [info] 1#1: *2 over, client: 192.0.2.1, server: 0.0.0.0:53, upstream: "x:1", bytes: 0',
            {
                "time": "2026/01/31 12:00:00",
                "level": "info",
                "pid": "1",
                "tid": "1",
                "connection": "2",
                "message": 'over, client: 192.0.2.1, server: 0.0.0.0:53, upstream: "x:1", bytes: 0',
            },
            id="something else behind them",
        ),
    ],
)
def test_nginx_error_log(parser: str, line: str, expected: dict[str, str]) -> None:
    """The fields after nginx's message are found; text from the client does not imitate them."""
    assert make_parser(parser)(line) == expected


@pytest.mark.parametrize(
    "line", ["2026/01/31 12:00:00 [error] no process", "2026/01/31 12:00:00 error", "1234/", "2026/"]
)
def test_a_line_that_only_begins_like_nginxs_error_log_such_as_one_of_gos_log_is_not_parsed(line: str) -> None:
    """A line that only begins like nginx's error log, such as one of Go's ``log``, is not parsed."""
    assert make_parser("auto")(line) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8",
            {
                "priority": "34",
                "facility": "4",
                "severity": "2",
                "time": "Oct 11 22:14:15",
                "host": "mymachine",
                "program": "su",
                "message": "'su root' failed for lonvick on /dev/pts/8",
            },
            id="RFC 3164 with a priority",
        ),
        pytest.param(
            "Jun 14 15:16:01 combo sshd(pam_unix)[19939]: authentication failure; logname= uid=0",
            {
                "time": "Jun 14 15:16:01",
                "host": "combo",
                "program": "sshd(pam_unix)",
                "pid": "19939",
                "message": "authentication failure; logname= uid=0",
            },
            id="a file of a classic syslogd",
        ),
        pytest.param(
            "2024-05-01T10:00:00.123456+02:00 web-1 systemd[1]: Started Daily apt activities.",
            {
                "time": "2024-05-01T10:00:00.123456+02:00",
                "host": "web-1",
                "program": "systemd",
                "pid": "1",
                "message": "Started Daily apt activities.",
            },
            id="a file of today's rsyslog",
        ),
        pytest.param(
            '<165>1 2003-10-11T22:14:15.003Z a.example evntslog - ID47 [x@32473 i="3" e="\\"]"][y@1] \ufeffAn event',
            {
                "priority": "165",
                "facility": "20",
                "severity": "5",
                "version": "1",
                "time": "2003-10-11T22:14:15.003Z",
                "host": "a.example",
                "program": "evntslog",
                "msgid": "ID47",
                "structured_data": '[x@32473 i="3" e="\\"]"][y@1]',
                "message": "An event",
            },
            id="RFC 5424",
        ),
        pytest.param("<999>Oct 11 22:14:15 host su: no such priority", None, id="a priority out of range"),
        pytest.param("something else", None, id="no syslog at all"),
    ],
)
def test_syslog(line: str, expected: dict[str, str] | None) -> None:
    """Both RFCs, and files without a priority, have time, host, program, pid and message."""
    assert make_parser("syslog")(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            '{"a": "x", "n": 12345678901234567890, "f": 1.5, "t": true, "z": null, "o": {"k": ["é", 1]}}',
            {"a": "x", "n": "12345678901234567890", "f": "1.5", "t": "true", "o": '{"k":["é",1]}'},
            id="each kind of value",
        ),
        pytest.param("{}", {}, id="an empty object"),
        pytest.param("[1, 2]", None, id="a list"),
        pytest.param('"text"', None, id="a string"),
        pytest.param('{"a": 1', None, id="half an object"),
        pytest.param('{"a": 1} {"b": 2}', None, id="two objects"),
        pytest.param('{"a": ' + "[" * 100_000 + "}", None, id="too deep"),
        pytest.param('{"a": ' + "9" * 5_000 + "}", None, id="an integer too long for Python"),
        pytest.param("", None, id="an empty line"),
    ],
)
def test_json(line: str, expected: dict[str, str] | None) -> None:
    """Top-level keys of an object become fields; any other line is not parsed."""
    assert make_parser("json")(line) == expected


def test_regex_groups_become_fields() -> None:
    """Named groups with a match are the fields; the whole line must match."""
    parse = make_parser("regex", r"(?P<level>[A-Z]+) (?:\[(?P<thread>\w+)\] )?(?P<message>.*)")
    assert parse("INFO ready") == {"level": "INFO", "message": "ready"}
    assert parse("WARN [main] slow") == {"level": "WARN", "thread": "main", "message": "slow"}
    assert parse(" INFO ready") is None


@pytest.mark.parametrize(
    ("name", "pattern", "said"),
    [
        ("regex", None, "--parser regex needs --pattern REGEX"),
        ("json", "(?P<a>.)", "--pattern is an option of --parser regex"),
        ("regex", "(?P<a>", "is not a regular expression"),
        ("regex", "no groups", "has no named group"),
        ("csv", None, "unknown parser 'csv': use one of auto, text, json, regex, apache, syslog, logfmt, delimited"),
    ],
)
def test_an_invalid_parser_or_pattern_is_an_error_before_anything_is_read(
    name: str, pattern: str | None, said: str
) -> None:
    """An invalid parser or pattern is an error before anything is read."""
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        make_parser(name, pattern)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ('{"level": "INFO"}', "level"),
        (COMBINED, "user_agent"),
        ("[Sun Dec 04 04:47:44 2005] [error] x", "message"),
        ("<34>Oct 11 22:14:15 mymachine su: x", "priority"),
        ("Jun 14 15:16:01 combo su: x", "program"),
        ('time=2024-01-31T12:00:00Z level=info msg="a b"', "level"),
    ],
)
def test_auto_finds_the_format_of_each_line(line: str, field: str) -> None:
    """``auto`` detects the format of each line in a mixed file."""
    fields = make_parser("auto")(line)
    assert fields is not None
    assert field in fields


@pytest.mark.parametrize(
    "line",
    [
        "\tat java.base/java.lang.Thread.run(Thread.java:840)",
        "x=1 is what it says",
        "only=one",
        "https://a/?b=c d=e",
        "2024-05-01 10:00:00,123 INFO app: x",
    ],
)
def test_auto_leaves_lines_of_no_format_to_text(line: str) -> None:
    """Lines of a stack trace, prose with an equals sign, and lines of log4j have no format."""
    assert make_parser("auto")(line) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            'level=info msg="a \\"b\\"" url=/x?y=z cached',
            {"level": "info", "msg": 'a "b"', "url": "/x?y=z", "cached": "true"},
            id="each kind of value",
        ),
        pytest.param('a="\\n\\t\\\\ \\q \\u00e9 \\ud83d\\ude00"', {"a": "\n\t\\ \\q é \U0001f600"}, id="escapes"),
        pytest.param("a= b=1 ", {"a": "", "b": "1"}, id="an empty value"),
        pytest.param("a=1 a=2", {"a": "2"}, id="a key that comes twice"),
        pytest.param("a==b", {"a": "=b"}, id="a value with the sign"),
        pytest.param("plain words", None, id="no value in front"),
        pytest.param('a="open', None, id="a quote that does not end"),
        pytest.param('a="b"c', None, id="something behind a quote"),
        pytest.param('a=1 "b"', None, id="a quote that is no value"),
        pytest.param("=1", None, id="no key"),
        pytest.param("", None, id="an empty line"),
    ],
)
def test_logfmt(line: str, expected: dict[str, str] | None) -> None:
    """Words with values become fields, later words without are flags; any other line is not parsed."""
    assert make_parser("logfmt")(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param('1,"two, ""2""",3', {"a": "1", "b": 'two, "2"', "c": "3"}, id="quotes"),
        pytest.param(',"",', {"b": ""}, id="missing values, and an empty one"),
        pytest.param('x"y, z ,"1"', {"a": 'x"y', "b": " z ", "c": "1"}, id="a quote within a value"),
        pytest.param("1,2", None, id="a value too few"),
        pytest.param("1,2,3,4", None, id="a value too many"),
        pytest.param('1,2,"3', None, id="a quote that does not end"),
        pytest.param('1,"2"x,3', None, id="something behind a quote"),
        pytest.param("", None, id="an empty line"),
    ],
)
def test_delimited(line: str, expected: dict[str, str] | None) -> None:
    """A line has a value for each column, quoted as in RFC 4180; another number of values is not parsed."""
    assert make_parser("delimited", None, Values(",", ("a", "b", "c")))(line) == expected


def test_header_names_have_no_byte_order_mark() -> None:
    """Header names have no byte order mark; repeated, reserved and missing ones are changed, long ones refused."""
    assert header_names('\ufeffa;"b ;"" c";a;;__time__;'.encode(), ";") == ("a", 'b ;" c', "a_", "_", "__time___", "__")
    assert header_names(b'a,"b', ",") == ()
    assert header_names(b"a" * (MAX_NAME_BYTES + 1), ",") == ()


@pytest.mark.parametrize("given", ["", ",,", '"', "\n", "é"])
def test_bad_delimiter_is_refused(given: str) -> None:
    """An invalid delimiter is refused with the rule."""
    with pytest.raises(InputError, match="must be one ASCII character"):
        checked_delimiter(given)


@pytest.mark.parametrize("given", ["tab", "\\t", "\t"])
def test_tab_has_a_name(given: str) -> None:
    """A tab can be written by name, as it is hard to type in a shell."""
    assert checked_delimiter(given) == "\t"


@given(line=st.text(max_size=200))
@pytest.mark.parametrize("name", _NAMED)
def test_no_line_makes_a_parser_raise(name: str, line: str) -> None:
    """For any text, a parser returns text fields or None."""
    fields = make_parser(name)(line)
    assert fields is None or all(isinstance(value, str) for pair in fields.items() for value in pair)


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        " ",
        '"',
        ",",
        "a=1 ",
        '="',
        '""',
        "[",
        "] ",
        ' "',
        "\\",
        '\\"',
        " [a",
        '[a b="',
        '[a b="c" ',
        "{",
        '{"a":',
        "1.2 ",
    ],
)
@pytest.mark.parametrize(
    "start",
    ["", '1 - - [t] "', "<34>1 - h p - - ", "<34>1 - h p - - [x", "[", "Jun 14 15:16:01 h ", 'a="', "a=", 'x,"'],
)
@pytest.mark.parametrize("name", _NAMED)
def test_a_long_hostile_line_takes_linear_time_200_kb_within_a_second(name: str, start: str, unit: str) -> None:
    """A long hostile line takes linear time: 200 kB within a second."""
    line = start + unit * (200_000 // len(unit))
    parse = make_parser(name, None, Values(",", ("a", "b")))
    began = time.thread_time()
    parse(line)
    assert time.thread_time() - began < 1
