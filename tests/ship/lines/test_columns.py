"""Blocks as columns: each line has the same fields as in a record of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.ship.figures import Figures
from producer.ship.lines import columns
from producer.ship.lines.columns import FOUND_FIELDS, BlockColumns, Found
from producer.ship.lines.line import Block
from producer.ship.lines.names import MAX_NAME_BYTES
from producer.ship.lines.parsers import Values, make_parser
from producer.ship.lines.record import to_record
from tests.runaway import ENDLESS, RUNAWAY
from tests.wire.twins import TWINS, native

_PATTERN = r"(?P<level>[A-Z]+)(?: (?P<content>\w+))? (?P<message>.*)"
_PARSERS = [
    ("text", None),
    ("json", None),
    ("apache", None),
    ("auto", None),
    ("syslog", None),
    ("logfmt", None),
    ("delimited", None),
    ("regex", _PATTERN),
    (
        "regex",
        r'^(?P<host>\S+) \S+ \S+ \[(?P<at>[^]]+)\] "(?P<request>(?P<verb>[A-Z]+)?[^"]*)" (?P<status>\d+) .*$',
    ),
    ("regex", r"(?P<word>\w+)(?:=(?P<value>[^ ]*))?(?P<rest>.*?)"),
]

_ACCESS = '192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 - "-" "Mozilla é"'
_JSON = st.dictionaries(
    st.sampled_from(["a", "b", "content", "", "__tag__:x", "é", "\ud800"]),
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2)
    ),
    max_size=4,
).map(json.dumps)
_PLAIN = st.sampled_from(
    """
{"a":"x","b":1}
{"b":1,"a":"x"}
{"a":1.5,"b":-0.0}
{"a":1.50}
{"a":-0}
{"a":0.0001}
{"a":01}
{"a":0.00001}
{"a":1e5}
{"a":123456789012345678}
{"a":1234567890123456.5}
{"a":0.1234567890123456}
{"a":{"x":[1,2,{}],"y":null}}
{"a":{"x": 1}}
{"a":{"x":1,"x":2}}
{"a":[],"b":{},"c":[[[]]]}
{}
{"a":null,"b":true,"d":false}
 { "a" : "x" , "b" : [1.50] }
{"a":1} x
{"a":"x"
{"a"}
{"a":tru}
{"a":null,"a":1}
{"a":1,"a":null}
{"a":"q\\"q"}
{"é":"é","":""}
{"a":NaN}
{"a":[1,]}
{"a":.5}
{"a":1.}
{"a":-}
{"a":""}
{"a":12345678901234.5}
{"a":123456789012345.5}
{"a":0.10}
{"__time__":1}
{"content":1,"content_":2}
{"content_":2}
{'a':1}
{"a":1,}
{"a":1e
{"a":1.5e3}
{"a":"\\u00e9\\/\\b\\f\\r\\t"}
{"a":"\\u12"}
{"a":"\\ud83d\\ude00"}
{"a":"\\ud83d"}
{"a":"\\q"}
{"a":"\\
{"a":["\\u00e9"]}
{"a":["\\/"]}
{"a":{"x\\n":1}}
{ "a" : { "x" : [ 1 , "a b" , null , true ] , "y" : { } } }
{"a":[1 2]}
{"a":[ ]}
{"a":["\\n\\"\\\\"]}
{"a":"\\u0000\\u07ff\\uffff"}
{"a":00.5}
{"a":100.0}
{"a":"t\tt"}
\u00a0{}
""".strip("\n").split("\n")
)
_LINES = st.one_of(
    _JSON,
    _PLAIN,
    _PLAIN,
    _JSON.map(lambda text: f" {text}\t"),
    st.sampled_from(
        [
            *(_ACCESS, f"www.x:80 {_ACCESS}", _ACCESS + ' "x', "[Sun Dec 04 04:47:44 2005] [error] no", "", "\r", "{"),
            *(_ACCESS.replace('"-"', '""'), _ACCESS.replace("GET /a HTTP/1.1", "")),
            *("INFO one two", "INFO  two", "WARN x", "a\rb", "é", '{"a":"\\ud800"}', '{"a":1,"a":2}', '["a"]', "[]"),
            *('{"' + "k" * (MAX_NAME_BYTES + 1) + '":1}', '{"a":' + "9" * 5000 + "}", "[" * 5000),
            *("Dec  4 04:47:44 host sshd[1]: hello", "<34>1 - - - - - -", "\ufeff{}", '{"a":' * 3000),
            *(
                '2026/01/31 12:00:00 [info] 1#1: *2 x, client: y, server: , request: ""',
                "2026/",
                "é/a/b",
                "{   /",
                "</</</",
            ),
            *("2026/01/31 12:00:00 [error] x", "Dec /4 04:47:44 host x: y"),
        ]
    ),
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=10),
)

# Parts of lines of each format, whole or in the wrong place.
_SYSLOG = st.one_of(
    st.tuples(
        st.sampled_from(["", "<34>", "<007>", "<191>", "<192>", "<>", "<1234>", "<3a>", "<0>"]),
        st.sampled_from(["", "1 ", "12 ", "0 ", "123 ", "1"]),
        st.sampled_from(
            [
                *("Oct 11 22:14:15", "Oct  1 22:14:15", "oct 11 22:14:15", "Oct 11 2:14:15", "-"),
                *("2003-10-11T22:14:15Z", "2003-10-11T22:14:15.003+02:00", "2003-10-11T22:14:15,1234567890Z"),
                *("2003-10-11T22:14:15", "2003-10-11T22:14:15.-0100", "2003-10-11T22:14:15.1-0100", "2003-10-11"),
                *(
                    "Oct 1 22:14:15.123",
                    "Oct 11 2003 22:14:15,5 UTC:",
                    "2003 Oct  1 2:14:15 +0200",
                    "2003-10-11 22:14:15",
                ),
                *("Oct 11 22:14:15 2003", "Oct 11 22:14:15Z 2003:", "Oct 11 22:14:15 UTC:x", " Oct 11 22:14:15:", ""),
                *("2003-10-11 22:14:15 -01:00", "Oct   1 22:14:15", "Oct 111 22:14:15", "2003 2003-10-11T22:14:15"),
            ]
        ),
        st.sampled_from(
            [" host", " -", " é\u00a0x", "  ", "", " a\tb", " su:", " su[1]:", " {x", " fe80::1", " :", ":"]
        ),
        st.lists(
            st.sampled_from(
                [
                    *(
                        "su",
                        "su:",
                        "su[1]:",
                        "su[]: ",
                        "su[1",
                        "su[1]",
                        "-",
                        "a b",
                        "[x@1]",
                        '[x i="3" e="\\"]"][y@1]',
                        ":",
                    ),
                    *(
                        '[x i="3"',
                        '[x i="3\\',
                        "[x i=3]",
                        "[ ]",
                        "\ufeffmsg",
                        "\ufeff",
                        "msg é",
                        "",
                        "\t",
                        "ID47",
                        "\r",
                    ),
                ]
            ),
            max_size=6,
        ).map(lambda parts: "".join(f" {part}" for part in parts)),
    ).map("".join),
    st.just('<165>1 2003-10-11T22:14:15.003Z host evntslog - ID47 [x@32473 i="3" e="\\"]"][y@1] \ufeffAn event'),
)
_LOGFMT = st.lists(
    st.sampled_from(
        [
            *(
                "a=1",
                "b=",
                "flag",
                'c="x y"',
                'c="\\"\\\\\\n\\q\\é"',
                'd="\\u00e9\\ud83d\\ude00"',
                'd="\\ud83d"',
                'e="\\u12"',
            ),
            *(
                "a==b",
                '"',
                "=",
                'a="',
                'a="b"c',
                "é=ü",
                "\t",
                "\r",
                "a=\u00a0",
                "content=x",
                "content_=y",
                'x="\\',
                'a"b=1',
            ),
            *("k" * (MAX_NAME_BYTES + 1) + "=1", "__time__=1", "a=true"),
        ]
    ),
    max_size=6,
).map(" ".join)
_DELIMITED = st.lists(
    st.sampled_from(
        ["a", "", '""', '"x,y"', '"x""y"', 'x"y', '"x', '"x"y', '"', " é ", '"é"', "\r", '""""', '"\u00a0"']
    ),
    max_size=5,
).map(",".join)


_VALUES = Values(",", ("a", "é", "content_"))


def rows_of(block: Block, parser: str, pattern: str | None, figures: Figures) -> list[dict[str, str]]:
    """Return the fields of each line, as they would be sent."""
    batch = BlockColumns(parser, pattern, offset=True, values=_VALUES).batch(block, figures)
    rows = []
    for row in batch.to_pylist():
        found = dict(row.pop(FOUND_FIELDS, None) or [])
        fields = {name: str(value) for name, value in row.items() if value is not None}
        assert not fields.keys() & found.keys()
        rows.append(fields | found)
    return rows


_SPLITS = ("split_access", "split_objects", "split_syslog", "split_logfmt", "split_delimited")
_AS_IT_IS = {name: getattr(columns, name) for name in (*_SPLITS, "_MOSTLY", "steps_of")}


@pytest.fixture(autouse=True)
def _as_it_is(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the native or pure implementation of the module for other tests."""
    if "twin" not in request.fixturenames:
        for name, value in _AS_IT_IS.items():
            monkeypatch.setattr(columns, name, value)


@pytest.fixture(scope="module", params=TWINS)
def twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Use native code, then the pure implementation."""
    from producer.wire import access_log

    splits: dict[str, object] = {"split_access": access_log.split_access}
    splits |= dict.fromkeys(_SPLITS[1:])
    if request.param == "native":
        from producer.wire import _access_log, _delimited, _json_objects, _logfmt, _syslog

        for module in (_access_log, _delimited, _json_objects, _logfmt, _syslog):
            splits |= {name: getattr(module, name) for name in splits if hasattr(module, name)}
    with pytest.MonkeyPatch.context() as patch:
        for name, split in splits.items():
            patch.setattr(columns, name, split)
        patch.setattr(columns, "_MOSTLY", 0.0)
        if request.param != "native":
            patch.setattr(columns, "steps_of", lambda *_, **__: None)
        yield request.param


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize(("parser", "pattern"), _PARSERS)
@given(
    lines=st.lists(st.one_of(_LINES, _SYSLOG, _LOGFMT, _DELIMITED), min_size=1, max_size=12),
    ends=st.sampled_from(["\n", "\r\n"]),
    ended=st.booleans(),
    offset=st.sampled_from([0, 7, 1 << 40]),
)
@example(lines=["", ""], ends="\n", ended=True, offset=0)
@example(lines=["x", "\r"], ends="\r\n", ended=False, offset=0)
def test_for_any_lines_and_every_parser_a_block_has_the_fields_of_its_lines_parsed_one_by_one(
    parser: str, pattern: str | None, lines: list[str], ends: str, ended: bool, offset: int
) -> None:
    """For any lines and every parser, a block has the fields of its lines parsed one by one."""
    data = (ends.join(lines) + (ends if ended else "")).encode()
    if not data:
        return
    block, figures, parse = Block(offset, data), Figures(), make_parser(parser, pattern, _VALUES)
    records = [(line, to_record(line, parse)) for line in block.lines()]
    assert rows_of(block, parser, pattern, figures) == [record.fields(line, offset=True) for line, record in records]
    assert figures.unparsed == sum(not record.parsed for _, record in records)


def test_objects_with_the_same_keys_are_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without native code, keys of most objects are columns; a line with other keys uses the map."""
    monkeypatch.setattr(columns, "split_objects", None)
    block = Block(0, b'{"a":1,"b":"x"}\n{"a":2,"b":null}\n{"c":3}\n')
    batch = BlockColumns("json", None, offset=False).batch(block, Figures())
    assert batch.schema.names == ["content", "a", "b", FOUND_FIELDS]
    assert batch.column("a").to_pylist() == ["1", "2", None]
    assert batch.column("b").to_pylist() == ["x", None, None]
    assert batch.column(FOUND_FIELDS).to_pylist() == [[], [], [("c", "3")]]


@native
def test_plain_objects_need_no_map() -> None:
    """Native code makes a column of every key; objects that Python would format otherwise use the map."""
    block = Block(0, b'{"a":1,"b":"x"}\n{"c":[1, "\\n"]}\n{"c":"\\u00e9\\n"}\n{}\n{"a":1.50}\n')
    batch = BlockColumns("json", None, offset=False).batch(block, Figures())
    assert batch.schema.names == ["content", "a", "b", "c", FOUND_FIELDS]
    assert batch.column("c").to_pylist() == [None, '[1,"\\n"]', "é\n", None, None]
    assert batch.column(FOUND_FIELDS).to_pylist() == [[], [], [], [], [("a", "1.5")]]


def test_access_log_needs_no_map() -> None:
    """A block of an access log has only columns, without fields that no line has."""
    batch = BlockColumns("auto", None, offset=False).batch(Block(0, f"{_ACCESS}\n".encode() * 3), Figures())
    assert "user_agent" in batch.schema.names
    assert not {"vhost", "extra", FOUND_FIELDS} & set(batch.schema.names)


@native
@pytest.mark.parametrize(
    ("parser", "line", "names"),
    [
        ("syslog", "<34>Oct 11 22:14:15 box su[7]: failed", "priority facility severity time host program pid message"),
        ("logfmt", 'level=info msg="a b"', "level msg"),
        ("delimited", "1,2,3", "a é content_"),
    ],
)
def test_the_fields_of_a_format_with_native_code_are_columns_and_no_python_code_runs_per_line(
    parser: str, line: str, names: str
) -> None:
    """The fields of a format with native code are columns, and no Python code runs per line."""
    block = Block(0, f"{line}\n".encode() * 3)
    batch = BlockColumns(parser, None, offset=False, values=_VALUES).batch(block, Figures())
    assert set(batch.schema.names) == {"content", *names.split()}


@native
def test_expression_of_an_access_log_is_matched_by_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Common patterns are matched by native code; lines without a match, or not ASCII, are searched."""
    seen: list[str] = []
    by_re = columns._matched

    def noted(lines: pa.StringArray, *rest: Any) -> Found:
        seen.extend(lines.to_pylist())
        return by_re(lines, *rest)

    monkeypatch.setattr(columns, "_matched", noted)
    block = Block(0, b"INFO a\nno\nWARN [x] b\n" + "INFO é\n".encode())
    figures = Figures()
    pattern = r"(?P<level>[A-Z]+) (?:\[(?P<thread>\w+)\] )?(?P<message>.+)"
    batch = BlockColumns("regex", pattern, offset=False).batch(block, figures)
    assert seen == ["no", "INFO é"]
    assert batch.schema.names == ["content", "level", "thread", "message"]
    assert batch.column("level").to_pylist() == ["INFO", None, "WARN", "INFO"]
    assert batch.column("thread").to_pylist() == [None, None, "x", None]
    assert batch.column("message").to_pylist() == ["a", None, "b", "é"]
    assert figures.unparsed == 1


def test_line_at_which_the_pattern_runs_away_goes_as_text(quick_limit: None, caplog: pytest.LogCaptureFixture) -> None:
    """A line whose search exceeds the limit is sent as text, with a warning; the others have their fields."""
    figures = Figures()
    block = Block(0, f"aa\n{ENDLESS}\n".encode())
    batch = BlockColumns("regex", f"(?P<all>{RUNAWAY[:-1]})", offset=False).batch(block, figures)
    assert batch.column("all").to_pylist() == ["aa", None]
    assert (figures.unparsed, len(caplog.messages)) == (1, 1)
    assert caplog.messages[0].startswith("--pattern: a search with")
    assert make_parser("regex", f"(?P<all>{RUNAWAY[:-1]})", Values())(ENDLESS) is None


@native
def test_mixed_formats_are_taken_apart_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``auto``, objects and syslog are columns next to an access log, without Python code per line."""
    for name in ("parse_syslog", "parse_json", "_add_single"):
        monkeypatch.setattr(columns, name, lambda *_: pytest.fail("a line was parsed by itself"))
    lines = ['{"a":"x","time":"t"}', "<34>Oct 11 22:14:15 box su[7]: failed", _ACCESS, "Oct 11 22:14:15 box cron: run"]
    batch = BlockColumns("auto", None, offset=False).batch(Block(0, "\n".join(lines * 3).encode()), Figures())
    assert FOUND_FIELDS not in batch.schema.names
    times = ["t", "Oct 11 22:14:15", "10/Oct/2000:13:55:36 -0700", "Oct 11 22:14:15"]
    assert batch.column("time").to_pylist() == times * 3
    assert batch.column("program").to_pylist() == [None, "su", None, "cron"] * 3


def test_a_block_of_line_ends_does_not_allocate_a_thousand_values_per_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of line ends does not allocate a thousand values per line; its lines are parsed one by one."""
    monkeypatch.setattr(columns, "split_delimited", lambda *_: pytest.fail("places were asked for"))
    values = Values(",", tuple(f"c{number}" for number in range(1000)))
    figures = Figures()
    BlockColumns("delimited", None, offset=False, values=values).batch(Block(0, b"\n" * 1000), figures)
    assert figures.unparsed == 1000
