"""The format grok of parse."""

from __future__ import annotations

import re
import time

import pytest

from producer.agent import AgentConfigError
from producer.agent.interceptors.grok import grok_parser, usual_patterns
from tests.agent.components import headers, interceptor, lines


def grok(*expressions: str, **definitions: str):
    return grok_parser(expressions, definitions)


def test_the_first_matching_expression_gives_the_fields():
    """The first expression that matches a line gives its headers; a line that none matches stays as it is."""
    patterns = ["%{COMBINEDAPACHELOG}", "%{SYSLOGLINE}", r"%{LOGLEVEL:level}:? (?<rest>.*)"]
    access = '1.2.3.4 - joe [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 - "-" "curl"'
    made = interceptor("parse", format="grok", patterns=patterns)
    found = headers(made.intercept(lines(access, "Oct  1 22:14:15 box su[7]: no", "ERROR: x é", "none")))
    assert found[0].items() >= {"clientip": "1.2.3.4", "verb": "GET", "response": "200", "agent": '"curl"'}.items()
    assert "bytes" not in found[0]
    assert found[1].items() >= {"logsource": "box", "program": "su", "pid": "7", "message": "no"}.items()
    assert found[2:] == [{"level": "ERROR", "rest": "x é"}, {}]


@pytest.mark.parametrize(
    ("name", "matching", "others"),
    [
        ("IP", "1.2.3.4 255.0.0.1 ::1 2001:db8::7 fe80::1%eth0 ::ffff:1.2.3.4 1:2:3:4:5:6:7:8", "1.2.3 256.1.1.1 x"),
        ("NUMBER", "1 -1 +2.5 .5 100", "x -"),
        ("HOSTPORT", "a.example.com:80 1.2.3.4:9", "a a:"),
        ("MAC", "01:23:45:67:89:ab 01-23-45-67-89-AB 0123.4567.89ab", "01:23"),
        ("UUID", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
        ("EMAILADDRESS", "jo.d+x@example.com", "jo@ @example.com"),
        ("TIMESTAMP_ISO8601", "2024-01-31T12:00:00.5+01:00 2024-01-31T12:00Z", "2024-13-31T12:00:00 2024-01-31"),
        ("HTTPDATE", "10/Oct/2000:13:55:36@-0700", "10/10/2000:13:55:36@-0700"),
        ("SYSLOGTIMESTAMP", "Oct@11@22:14:15 Oct@@1@22:14:15", "Oct@32@22:14:15"),
        ("LOGLEVEL", "INFO Warning err CRITICAL", "LOUD"),
        ("URI", "http://jo:x@a.example.com:80/b?c=d https://h/ s3://b/k", "http:/a /a"),
        ("PATH", r"/var/log/a.log C:\logs\a.log", "a"),
        ("QS", '"a\\"b" \'x\'', '"a'),
        ("JAVACLASS", "com.example.My$Class", "1a"),
        ("WORD", "ab_1", "-"),
    ],
)
def test_the_usual_names_match_what_they_say(name, matching, others):
    """Each usual name matches texts of its kind as a whole, and no others; ``@`` stands for a blank."""
    parse = grok(rf"^%{{{name}:x}}$")
    texts = [text if name in ("URI", "EMAILADDRESS") else text.replace("@", " ") for text in matching.split()]
    assert [parse(text) for text in texts] == [{"x": text} for text in texts]
    assert [parse(text.replace("@", " ") if name != "EMAILADDRESS" else text) for text in others.split()] == [
        None for _ in others.split()
    ]


def test_every_usual_name_is_valid_and_ends_soon(caplog):
    """Every definition of the file is a valid pattern, whose search of hostile lines ends before the limit."""
    hostile = [unit * (300 // len(unit)) + "\1" for unit in ("a", "/", "1.", "a.", ":", "\\", '"', "a@", "Jan ")]
    for name in usual_patterns():
        parse = grok(f"%{{{name}:x}}[!?]")
        assert [parse(line) for line in hostile] == [None] * len(hostile)
    assert "took more than" not in caplog.text


def test_fields_may_be_nested_typed_and_repeated():
    """A type is accepted, brackets become dots, and of several groups of a field the first that matched counts."""
    assert grok("%{IP:[client][ip]} %{INT:n:int}")("1.2.3.4 7") == {"client.ip": "1.2.3.4", "n": "7"}
    either = grok("(?:a=%{INT:n}|b=%{WORD:n})")
    assert [either("a=1"), either("b=x"), either("c")] == [{"n": "1"}, {"n": "x"}, None]


def test_the_users_definitions_are_used_and_replace_usual_ones():
    """The user's definitions are used, refer to each other, and replace usual ones."""
    found = interceptor(
        "parse", format="grok", patterns=["%{ORDER:order} %{WORD:w}"], definitions={"ORDER": r"o-%{INT}", "WORD": "w+"}
    ).intercept(lines("an o-12 www"))
    assert headers(found) == [{"order": "o-12", "w": "www"}]


@pytest.mark.parametrize(
    ("expression", "definitions", "message"),
    [
        ("%{NOSUCH:a}", {}, "%{NOSUCH} is unknown"),
        ("%{WORD}", {}, "has no field"),
        ("%{A:a}", {"A": "%{B}", "B": "%{A}"}, "%{A} is defined by itself"),
        ("(%{WORD:a}", {}, "must be a regular expression"),
        ("%{A8:a}", {f"A{n}": f"%{{A{n - 1}}}" * 10 for n in range(1, 9)} | {"A0": "x"}, "is longer than 100,000"),
    ],
)
def test_an_invalid_expression_is_a_configuration_error(expression, definitions, message):
    """An unknown name, a circle, a broken pattern or definitions that grow without end are configuration errors."""
    with pytest.raises(AgentConfigError, match=re.escape(message)):
        interceptor("parse", format="grok", patterns=[expression], definitions=definitions)


def test_a_search_without_end_is_ended(caplog):
    """A search ends at the limit of all users' patterns, and the line is kept without fields."""
    made = interceptor("parse", format="grok", patterns=["^(?<x>(a|aa)+)$"])
    began = time.process_time()
    assert headers(made.intercept(lines("a" * 60 + "b"))) == [{}]
    assert time.process_time() - began < 30
    assert "took more than 1 s" in caplog.text
