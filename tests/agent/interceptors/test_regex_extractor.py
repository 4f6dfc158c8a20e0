"""regex_extractor."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from producer.agent import AgentConfigError, EventBatch
from producer.ship.line_times import LineTimes
from producer.testing import ManualClock
from tests.agent.components import bodies, headers, interceptor, lines, made_of_flume


@pytest.mark.parametrize("make", [lines, bodies])
def test_groups_become_headers(make):
    """Each group's text is a header; an event without a match gets none, and bodies are unchanged."""
    flume = {"serializers": "s1 s2", "serializers.s1.name": "Num1", "serializers.s2.name": "Num2"}
    made = made_of_flume("interceptors", "regex_extractor", regex=r"(\d):(\d)", **flume)
    batch = make("1:2.3.4foobar5", "none", "7:8")
    after = made.intercept(batch)
    assert headers(after) == [{"Num1": "1", "Num2": "2"}, {}, {"Num1": "7", "Num2": "8"}]
    assert after.block is batch.block


def test_groups_of_their_own_names_need_no_list():
    """Named groups are headers without further options, also in Java's syntax."""
    made = interceptor("regex_extractor", regex=r"(?<level>\p{Upper}+) (?P<rest>.*)")
    assert headers(made.intercept(lines("INFO x y"))) == [{"level": "INFO", "rest": "x y"}]


def test_if_a_group_does_not_take_part_in_the_match_the_event_keeps_its_existing_header():
    """If a group does not take part in the match, the event keeps its existing header."""
    made = interceptor("regex_extractor", regex=r"a(?P<h>\d)?")
    assert headers(made.intercept(lines("a1", "a", "b", h="old"))) == [{"h": "1"}, {"h": "old"}, {"h": "old"}]
    assert headers(made.intercept(lines("a"))) == [{}]


def test_times_become_milliseconds():
    """A serializer of the type millis parses a time by Java's pattern, in the given zone."""
    flume = {
        "serializers": "s1",
        "serializers.s1.type": "org.apache.flume.interceptor.RegexExtractorInterceptorMillisSerializer",
        "serializers.s1.name": "t",
        "serializers.s1.pattern": "yyyy-MM-dd HH:mm:ss,SSS",
        "timeZone": "UTC",
    }
    made = made_of_flume("interceptors", "regex_extractor", regex=r"^([\d-]+ [\d:,]+)", **flume)
    after = made.intercept(lines("2012-10-17 14:34:44,338 INFO", "2012-99-99 14:34:44,338"))
    moment = datetime(2012, 10, 17, 14, 34, 44, 338000, UTC)
    assert headers(after) == [{"t": str(round(moment.timestamp() * 1000))}, {}]


@pytest.mark.parametrize(
    ("pattern", "text", "moment"),
    [
        ("dd/MMM/yyyy:HH:mm:ss Z", "10/Oct/2000:13:55:36 -0700", datetime(2000, 10, 10, 20, 55, 36, tzinfo=UTC)),
        ("yyyy-MM-dd'T'HH:mm:ssZZ", "2020-02-29T01:02:03+01:00", datetime(2020, 2, 29, 0, 2, 3, tzinfo=UTC)),
        ("%d.%m.%y %I:%M %p", "01.02.03 04:05 PM", datetime(2003, 2, 1, 16, 5, tzinfo=UTC)),
        ("%c", "Sun Feb  1 16:05:00 2003", datetime(2003, 2, 1, 16, 5, tzinfo=UTC)),
        ("MMM d HH:mm:ss", "Dec 31 23:59:59", datetime(2023, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("MMM d HH:mm:ss", "Jan 1 00:00:00", datetime(2024, 1, 1, tzinfo=UTC)),
        ("MMM d HH:mm:ss", "Feb 29 00:00:00", datetime(2020, 2, 29, tzinfo=UTC)),
        ("MMM d HH:mm:ss", "Feb 30 00:00:00", None),
    ],
)
def test_patterns_of_times(pattern, text, moment):
    """Java's letters and strptime's directives are supported; without a year the latest such time is meant."""
    clock = ManualClock(datetime(2024, 1, 1, 12, tzinfo=UTC).timestamp())
    options = {"regex": "(.+)", "headers": ["t"], "times": {"t": pattern}, "time_zone": "UTC"}
    found = headers(interceptor("regex_extractor", clock, **options).intercept(lines(text)))
    assert found == [{} if moment is None else {"t": str(round(moment.timestamp() * 1000))}]


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "+08:00"])
def test_zones_by_name_or_offset_and_nine_digits_after_the_second_are_parsed_as_by_ship(zone):
    """Zones by name or offset, and nine digits after the second, are parsed as by ``ship``."""
    form, text = "%d.%m.%Y %H:%M:%S.%f", "31.01.2024 20:00:00.123456789"
    made = interceptor("regex_extractor", regex="(.+)", headers=["t"], times={"t": form}, time_zone=zone)
    read = LineTimes(zone, form).reader()(text)
    assert (read, headers(made.intercept(lines(text)))) == (1_706_702_400_123_456_789, [{"t": "1706702400123"}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regex": "(a"}, "regex: must be a regular expression"),
        ({"regex": "a"}, "headers: must name a header"),
        ({"regex": "(a)", "headers": "x y"}, "more headers than the pattern has groups"),
        ({"regex": "(a)", "headers": "x", "times": {"y": "yyyy"}}, "no group has this header"),
        ({"regex": "(a)", "headers": "x", "times": {"x": "yyyy-QQ"}}, "the letter 'Q'"),
        ({"regex": "(a)", "headers": "x", "times": {"x": "yyyy yyyy"}}, "has a part twice"),
        ({"regex": "(a)", "headers": "x", "times": {"x": "%Y %Q"}}, "is a bad directive"),
        ({"regex": "(a)", "headers": "x", "time_zone": "Nowhere/At_All"}, "must be a time zone"),
    ],
)
def test_an_invalid_pattern_list_of_headers_time_or_zone_is_a_configuration_error_with_the_reason(options, message):
    """An invalid pattern, list of headers, time or zone is a configuration error with the reason."""
    with pytest.raises(AgentConfigError, match=message):
        interceptor("regex_extractor", **options)


def test_a_users_serializer_class_is_refused_by_its_option_a_list_of_blanks_names_no_serializer():
    """A user's serializer class is refused by its option; a list of blanks names no serializer."""
    with pytest.raises(AgentConfigError, match="headers: must name a header"):
        made_of_flume("interceptors", "regex_extractor", regex="(a)", serializers="   ")
    flume = {"serializers": "s1", "serializers.s1.type": "com.example.My$Serializer"}
    with pytest.raises(AgentConfigError, match=r"serializers\.s1\.type: unknown option"):
        made_of_flume("interceptors", "regex_extractor", regex="(a)", **flume)


def test_an_empty_batch_stays_one():
    """A batch without events passes."""
    assert interceptor("regex_extractor", regex="(?P<a>a)").intercept(EventBatch.of_bodies([])).count == 0


@pytest.mark.parametrize("make", [lines, bodies])
def test_headers_are_the_same_with_compiled_code_and_without_also_for_lines_that_it_cannot_decide(make, monkeypatch):
    """Headers are the same with compiled code and without, also for lines that it cannot decide."""
    regex = r"^(?P<host>\S+) (?P<user>\S+)(?: (?P<agent>.*)x)?$"
    texts = ["a b cx", "no", "ä b", "a b", "a é cx", "", "c d e fx", "Ω ω ωx", "last one"]
    batch = make(*texts, host="old")
    fast = interceptor("regex_extractor", regex=regex)
    monkeypatch.setattr("producer.agent.interceptors.regex_extractor.steps_of", lambda *_: None)
    slow = interceptor("regex_extractor", regex=regex)

    assert headers(fast.intercept(batch)) == headers(slow.intercept(batch))
    nothing = make("none", "nö")
    assert fast.intercept(nothing) is nothing
