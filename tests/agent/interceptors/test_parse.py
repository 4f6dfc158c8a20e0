"""parse."""

from __future__ import annotations

import pytest

from producer.agent import AgentConfigError
from producer.testing import ManualClock
from tests.agent.components import headers, interceptor, lines


def test_fields_become_headers():
    """The fields of each line become headers of its event; a line of another format stays as it is."""
    after = interceptor("parse", format="logfmt").intercept(lines("a=1 b=x", "no format", "a=2"))
    assert headers(after) == [{"a": "1", "b": "x"}, {}, {"a": "2"}]
    assert after.block == b"a=1 b=x\nno format\na=2\n"


def test_lines_of_another_format_may_be_dropped():
    """With drop_others only lines of the format pass."""
    after = interceptor("parse", format="syslog", drop_others=True).intercept(
        lines("<34>Oct 11 22:14:15 box su[7]: failed", "x")
    )
    assert after.count == 1
    assert headers(after)[0].items() >= {"facility": "4", "program": "su", "message": "failed"}.items()


def test_the_named_fields_become_headers_with_the_prefix_and_replace_existing_ones():
    """The named fields become headers with the prefix, and replace existing ones."""
    line = '1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326'
    made = interceptor("parse", format="access", fields=["status", "uri"], prefix="http_")
    assert headers(made.intercept(lines(line, http_uri="old"))) == [{"http_status": "200", "http_uri": "/a"}]


def test_values_between_delimiters_are_named():
    """csv and tsv require names for their fields."""
    made = interceptor("parse", format="csv", fields=["a", "b"])
    assert headers(made.intercept(lines('1,"x,y"', "1,2,3"))) == [{"a": "1", "b": "x,y"}, {}]
    with pytest.raises(AgentConfigError, match="must name the fields of csv"):
        interceptor("parse", format="csv")


_ACCESS = '1.2.3.4 - joe [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326'
_LINES = {
    "access": [_ACCESS, "none", f'{_ACCESS} "-" "Mozilla"', f"h:80 {_ACCESS}", _ACCESS.replace("GET /a HTTP/1.0", "-")],
    "syslog": ["<34>Oct 11 22:14:15 box su[7]: failed", "none", "<165>1 2003-10-11T22:14:15Z h app - ID - msg", "<1>x"],
}


@pytest.mark.parametrize("name", _LINES)
@pytest.mark.parametrize("drop_others", [False, True])
def test_parsing_a_block_gives_the_same_headers_as_parsing_single_lines(name, drop_others):
    """Parsing a block gives the same headers as parsing single lines, which a line beyond ASCII forces."""
    made = interceptor("parse", format=name, drop_others=drop_others)
    at_once = headers(made.intercept(lines(*_LINES[name])))
    one_by_one = headers(made.intercept(lines(*_LINES[name], "é")))
    assert at_once == (one_by_one if drop_others else one_by_one[:-1])
    assert sum(map(bool, at_once)) >= 2


def test_fields_without_end_do_not_take_all_memory(caplog):
    """If lines have ever new fields only the frequent ones become headers; that is logged once, and bodies keep all."""
    made = interceptor("parse", format="logfmt")
    block = lines(*(f"k{number}=1 usual=2" for number in range(5000)))
    after = made.intercept(made.intercept(block))
    assert len(after.columns) * after.count < 3_000_000
    assert set(after.values("usual")) == {"2"}
    assert after.block == block.block
    assert caplog.text.count("5000 lines have 5001 different fields") == 1


def test_a_line_of_very_many_fields_has_them_all():
    """A single line with very many fields keeps all of them, in linear time."""
    line = " ".join(f"k{number}=1" for number in range(20000))
    (found,) = headers(interceptor("parse", format="logfmt").intercept(lines(line)))
    assert len(found) == 20000


def test_the_time_of_a_line_becomes_that_of_its_event():
    """With timestamp a line of an access log gets its time in milliseconds; other lines get none."""
    line = '1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326'
    made = interceptor("parse", format="access", fields=["time"], timestamp=True)
    assert [found.get("timestamp") for found in headers(made.intercept(lines(line, "x")))] == ["971211336000", None]


@pytest.mark.parametrize("nested", ["json", "flatten"])
def test_fields_of_json_become_headers_and_other_lines_stay_raw(nested):
    """Keys of JSON objects become headers; inner objects are kept as JSON or flattened; other lines stay as they are.

    Lines of the usual form, which compiled code parses, and rare ones, which it leaves, give the same headers.
    """
    given = ['{"a": {"b": [1, 2], "c": {}}, "n": 1.50}', '{"a":', "text", '{"a": "x", "n": null}', '{"ok": true}'] * 3
    made = interceptor("parse", format="json", nested=nested)
    inner = {"a": '{"b":[1,2],"c":{}}'} if nested == "json" else {"a.b": "[1,2]", "a.c": "{}"}
    after = made.intercept(lines(*given))
    assert headers(after) == [{**inner, "n": "1.5"}, {}, {}, {"a": "x"}, {"ok": "true"}] * 3
    assert after.bodies() == [line.encode() for line in given]
    assert made._counters.get("EventUnparsedCount") == 6
    rare = [line.replace("1.50", "1.5") for line in given]
    assert headers(made.intercept(lines(*rare, "é"))) == [*headers(after), {}]


def test_lines_that_compiled_code_leaves_add_their_own_fields():
    """Among lines of the usual form, a rare one has all its fields, also one that no other line has."""
    given = ['{"a": 1}'] * 5 + ['{"a": 2, "b": 1.50}', "x"]
    after = interceptor("parse", format="json").intercept(lines(*given))
    assert headers(after) == [{"a": "1"}] * 5 + [{"a": "2", "b": "1.5"}, {}]
    only = interceptor("parse", format="json", fields=["b"], drop_others=True).intercept(lines(*given))
    assert headers(only) == [{}] * 5 + [{"b": "1.5"}]


def test_keys_and_values_between_the_users_separators():
    """key_value finds pairs with the user's separators, and skips other text."""
    made = interceptor("parse", format="key_value", pair_separator=";", value_separator=":", prefix="x_")
    assert headers(made.intercept(lines('a: 1; "b"; c:"2;3"', "none"))) == [{"x_a": "1", "x_c": "2;3"}, {}]
    assert headers(interceptor("parse", format="key_value").intercept(lines("login failed user=jo"))) == [
        {"user": "jo"}
    ]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"format": "syslog"}, "<34>Jan 31 12:00:00 box su[7]: failed"),
        ({"format": "json", "time_field": "ts", "time_format": "unix"}, '{"ts": 1706702400}'),
        ({"format": "json", "time_field": "ts", "time_format": "rfc2822"}, '{"ts": "Wed, 31 Jan 2024 12:00:00 GMT"}'),
        ({"format": "json", "time_format": "dd.MM.yyyy HH:mm", "time_zone": "+08:00"}, '{"time": "31.01.2024 20:00"}'),
        ({"format": "logfmt", "fields": ["time"]}, "time=2024-01-31T13:00:00+01:00"),
    ],
)
def test_the_time_of_a_field_in_a_named_format_becomes_that_of_its_event(options, line):
    """With timestamp a field's time, in a format by name or pattern, becomes the header timestamp."""
    options = {"time_zone": "UTC", **options}
    made = interceptor("parse", ManualClock(1_710_000_000), timestamp=True, **options)
    assert headers(made.intercept(lines(line)))[0]["timestamp"] == "1706702400000"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "json", "timestamp": True, "fields": ["a"]}, "timestamp: needs the field time in fields"),
        ({"format": "json", "time_format": "unix"}, "time_format: needs timestamp = true"),
        ({"format": "json", "timestamp": True, "time_format": "noon"}, "the letter 'n'"),
        ({"format": "json", "timestamp": True, "time_zone": "Mars"}, "must be a time zone"),
        ({"format": "grok"}, "patterns: are needed by grok"),
        ({"format": "json", "patterns": ["%{WORD:a}"]}, "patterns: are needed by grok"),
        ({"format": "key_value", "value_separator": " "}, "value_separator: must differ"),
    ],
)
def test_options_that_do_not_fit_are_a_configuration_error(options, message):
    """Options that do not fit the format are a configuration error with the reason."""
    with pytest.raises(AgentConfigError, match=message):
        interceptor("parse", **options)
