"""PullLogs with an SPL query."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from producer.server import Limits, LogHubServer
from producer.server.errors import ApiError
from producer.server.operations.spl_text import read_spl
from producer.server.store.log_groups import StoredLogGroup
from producer.wire.schema import LogGroup

from ..client import LOGSTORE, Client, error_of, log_group

T = 1_700_000_000


def put(client: Client, *logs: dict[str, str | bytes], topic: str = "web") -> None:
    """Store a LogGroup in the first shard."""
    group = LogGroup(Topic=topic, Source="10.0.0.1")
    group.LogTags.add(Key="pod", Value="p-1")
    for number, fields in enumerate(logs):
        log = group.Logs.add(Time=T + number)
        for key, value in fields.items():
            log.Contents.add(Key=key, Value=value if isinstance(value, bytes) else value.encode())
    assert client.put(bytes(group.SerializeToString()), path="/shards/route", params={"key": "00"}).status_code == 200


def pull(client: Client, query: str) -> tuple[list[LogGroup], Any]:
    return client.pull(0, client.cursor(0, "begin"), query=query, pullMode="scan_on_stream")


def fields(client: Client, query: str) -> list[dict[str, bytes]]:
    """Return the fields of the resulting logs."""
    return [{one.Key: one.Value for one in log.Contents} for group in pull(client, query)[0] for log in group.Logs]


@pytest.fixture(scope="module")
def logs() -> Iterator[Client]:
    """Yield a client of a logstore with two LogGroups in its first shard."""
    with LogHubServer() as server, Client(server) as client:
        put(client, {"status": "200", "a": "x", "b": b"\xff"}, {"status": "500", "a": "y"})
        put(client, {"status": "none", "a": "x|y", "null": "null"}, topic="db")
        yield client


def test_a_condition_sifts_logs_in_their_log_groups(logs: Client) -> None:
    """Matching logs stay as sent, LogGroups without a match are left out, and the cursor advances."""
    groups, answer = pull(logs, "* | where status = '200'")
    (group,) = groups
    assert (group.Topic, group.Source, group.LogTags[0].Value, group.Logs[0].Time) == ("web", "10.0.0.1", "p-1", T)
    assert [one.Value for one in group.Logs[0].Contents] == [b"200", b"x", b"\xff"]
    headers = answer.headers
    assert (headers["x-log-count"], headers["x-log-resultlines"]) == ("1", "1")
    assert (headers["x-log-rawdatacount"], headers["x-log-rawdatalines"]) == ("2", "3")
    assert (headers["x-log-cursor"], headers["x-log-end-of-cursor"]) == (logs.cursor(0, "end"), "1")
    nothing, answer = logs.pull(0, headers["x-log-cursor"], query="* | where status = '200'")
    assert (nothing, answer.headers["x-log-cursor"]) == ([], headers["x-log-cursor"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("*", [b"x", b"y", b"x|y"]),
        ("* | where cast(status as bigint) >= 200", [b"x", b"y"]),
        ("* | where a = 'x' || '|' || 'y' or a like 'y%'", [b"y", b"x|y"]),
        ("* | where __topic__ = 'db' and \"__tag__:pod\" = 'p-1' and __time__ < 1700000001", [b"x|y"]),
        ("* | where nowhere = '1'", []),
        ("* | where nowhere is null | where STATUS = '500' -- a comment | nothing", [b"y"]),
        ("* | extend n = cast(status as bigint) + 1 | where n = 501", [b"y"]),
        ("* | where \"null\" = 'null'", [b"x|y"]),
    ],
)
def test_conditions_are_sql_over_texts(logs: Client, query: str, expected: list[bytes]) -> None:
    """A field is text until it is cast; a missing field or a failed cast does not match, and fails nothing else."""
    assert [one["a"] for one in fields(logs, query)] == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("* | project b, c = a", {"b": b"\xff", "c": b"x"}),
        ("* | project-away status, B, nowhere", {"a": b"x"}),
        ("* | project-rename s = status | where s = '200' | project s", {"s": b"200"}),
        ("* | project-rename a = status, status = a | project a, status", {"a": b"200", "status": b"x"}),
        ("* | extend a = upper(a), n = cast(status as int) * 2 | project a, n", {"a": b"X", "n": b"400"}),
        ("* | extend n = 1 | project-rename m = n | extend n = 'two' | project m, n", {"m": b"1", "n": b"two"}),
        ("* | extend gone = null, bad = cast(a as int) | project a, gone, bad", {"a": b"x"}),
        ("* | project topic = __topic__, __time__, __source__", {"topic": b"web"}),
        ("* | extend b = a | project-away a, status | where b is not null", {"b": b"x"}),
        ("* | extend s = concat(a, ',', '=') | project \"s\"", {"s": b"x,="}),
    ],
)
def test_operators_change_fields(logs: Client, query: str, expected: dict[str, bytes]) -> None:
    """project, project-away, project-rename and extend combine; a null makes no field; other bytes stay."""
    assert fields(logs, query)[0] == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("* | project a", ("", "", [])),
        ('* | project a, __topic__, "__TAG__:pod"', ("web", "", ["pod"])),
        ("* | project-away a", ("web", "10.0.0.1", ["pod"])),
    ],
)
def test_topic_source_and_tags_shared_by_the_logs_of_a_loggroup_are_fields_like_others_for_project(
    logs: Client, query: str, expected: tuple[str, str, list[str]]
) -> None:
    """Topic, source and tags, shared by the logs of a LogGroup, are fields like others for project."""
    group = pull(logs, query)[0][0]
    assert (group.Topic, group.Source, [tag.Key for tag in group.LogTags]) == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("status: 200 | where a = 'x'", "'*'"),
        ("where a = 'x'", "'*'"),
        ("* | stats count(*)", "'stats' is not an operator"),
        ("* | sort a", "'sort' is not an operator of this server: use where, extend, project"),
        ("* | expand-values a", "parse-regexp, parse-csv, parse-json, parse-kv, limit"),
        ("* | limit", "limit has no arguments"),
        ("* | limit many", "a number of logs"),
        ("* | limit 1, 2, 3", "a number of logs"),
        ("* | limit -1", "a number of logs"),
        ("* | parse-json -depth='2' a", "-depth of parse-json is invalid: use -mode='…', -path"),
        ("* | parse-json -mode='full' a", "'overwrite' or 'preserve'"),
        ("* | parse-json -path='a.b' a", "'$.body.values[0]'"),
        ("* | parse-json a, b", "is not a field name"),
        ("* | parse-csv a", "names no outputs"),
        ("* | parse-csv -quote='ab' a as b", "-quote exactly one"),
        ("* | parse-csv -strict='x' a as b", "-strict of parse-csv is invalid"),
        ("* | parse-kv a", "a delimiter of pairs"),
        ("* | parse-kv -regexp a, '(a)=(b)'", "-regexp of parse-kv is invalid"),
        ("* | parse-regexp a", "parse-regexp needs"),
        ("* | parse-regexp a, '(x' as b", "cannot be read"),
        ("* | parse-regexp a, '(x)' as b, c", "2 outputs: use 1 to 1"),
        ("* | parse-regexp a, 'x'", "0 outputs"),
        ("* | parse-regexp a, '(x)' as __topic__", "__topic__"),
        ("* | parse-regexp a, '(?=x)(x)' as b", "cannot be run"),
        ("* | ", "'' is not an operator"),
        ("* | where", "where has no arguments"),
        ("* | where a = 'x') or (1 = 1", "parentheses"),
        ("* | where a == == 'x'", "cannot be run"),
        ("* | where nosuchfunction(a)", "nosuchfunction"),
        ("* | where a", "no condition"),
        ("* | where nowhere", "no condition"),
        ("* | project a | where status = '200'", "status"),
        ('* | project -wildcard "a*"', "is not a field name"),
        ("* | extend a", "'field = expression'"),
        ("* | project-rename a", "'new = old'"),
        ("* | project a, a = b", "twice"),
        ("* | extend __time__ = 1", "__time__"),
        ("* | project-away __topic__", "__topic__"),
        ("*" + " | where true" * 33, "33 operators"),
        ("* | where a = '" + "x" * 9000 + "'", "8192"),
        ("* | where (select count(*) from read_csv('/etc/passwd')) > 0", "cannot be run"),
    ],
)
def test_an_unknown_operator_or_function_is_an_error_instead_of_an_empty_answer(
    logs: Client, query: str, message: str
) -> None:
    """An unknown operator or function is an error instead of an empty answer, and so is access beyond the page."""
    where = {"type": "log", "cursor": logs.cursor(0, "begin"), "query": query}
    answer = logs.get(f"/logstores/{LOGSTORE}/shards/0", **where)
    assert error_of(answer) == (400, "ParameterInvalid")
    assert message in answer.json()["errorMessage"]


PARSED = {
    "json": '{"a": "x\\u00e9", "n": 1.10, "o": {"k": [1,  2]}, "z": null, "t": true, "": 1, "__topic__": "no"}',
    "deep": '{"o": {"list": [{"k": "v"}, {"k": 2.0}]}, "o": {"list": [{"k": "w"}]}}',
    "csv": 'a,"b, ""c""",,d',
    "kv": 'k1="v 1"&k2=v2?k3=v=3& =x&lone',
    "spoken": 'k1="hello world",the change world, k2="good"',
    "line": "10.0.0.0 GET /index.html 200",
    "ip": "old",
}


@pytest.fixture(scope="module")
def parsed() -> Iterator[Client]:
    """Yield a client of a logstore with one log whose fields are to be parsed."""
    with LogHubServer() as server, Client(server) as client:
        put(client, PARSED)  # type: ignore[arg-type]
        yield client


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "parse-json json",
            {"a": "x\u00e9", "n": "1.10", "o": '{"k": [1,  2]}', "t": "true"},
        ),
        ("parse-json -prefix='p_' json | project p_a", {"p_a": "x\u00e9"}),
        ("parse-json -path='$.o' json | where k is not null | project k", {"k": "[1,  2]"}),
        ("parse-json -path='$.o.list[0]' deep | extend k = upper(k) | project k", {"k": "W"}),
        ("parse-json -path=\"$['o']\" deep", None),
        ("parse-json -path='$.o.list[9]' deep", {}),
        ("parse-json line", {}),
        ("parse-json nowhere", {}),
        ("parse-json __source__", {}),
        ('extend j = \'{"ip": "new"}\' | parse-json j | project ip', {"ip": "new"}),
        ("extend j = '{\"ip\": \"new\"}' | parse-json -mode='preserve' j | project ip", {"ip": "old"}),
        ("parse-csv csv as c1, c2, c3, c4", {"c1": "a", "c2": 'b, "c"', "c3": "", "c4": "d"}),
        ("parse-csv csv as c1, c2", {"c1": "a", "c2": 'b, "c"'}),
        ("parse-csv -strict csv as c1, c2", {}),
        (
            "parse-csv -delim=' ' line as ip, \"the method\", path, status, more",
            {"ip": "10.0.0.0", "the method": "GET", "path": "/index.html", "status": "200"},
        ),
        ("parse-csv -delim='\\x2e' -quote='!' line as first", {"first": "10"}),
        ("parse-kv -delims='&?' kv", {"k1": "v 1", "k2": "v2", "k3": "v=3"}),
        ("parse-kv spoken, ',', '=' | project k1, k2", {"k1": '"hello world"', "k2": '"good"'}),
        ("parse-kv -prefix='p_' kv, '&', '='", {"p_k1": '"v 1"', "p_k2": "v2?k3=v=3"}),
        ("parse-regexp line, '(\\S+)\\s+(\\w+)' as ip, method", {"ip": "10.0.0.0", "method": "GET"}),
        ("parse-regexp line, '(?P<ip>\\S+) (?P<verb>\\w+)'", {"ip": "10.0.0.0", "verb": "GET"}),
        ("parse-regexp line, 'nothing (x)' as ip", {}),
        ("parse-regexp nowhere, '(x)' as ip", {}),
        ("parse-regexp line, '(GET|it''s)' as m | where m = 'GET' | extend m2 = m || ip", {"m": "GET", "m2": "GETold"}),
        (
            "parse-regexp line, '([0-9.]+)' as x | parse-json json | parse-kv kv, '&', '=' | project x, n, k1;",
            {"x": "10.0.0.0", "n": "1.10", "k1": '"v 1"'},
        ),
    ],
)
def test_fields_are_taken_apart(parsed: Client, query: str, expected: dict[str, str] | None) -> None:
    """parse-json, parse-csv, parse-kv and parse-regexp extract fields; text of another form stays."""
    if expected is None:
        where = {"type": "log", "cursor": parsed.cursor(0, "begin"), "query": f"* | {query}"}
        assert error_of(parsed.get(f"/logstores/{LOGSTORE}/shards/0", **where)) == (400, "ParameterInvalid")
        return
    (found,) = fields(parsed, f"* | {query}")
    whole = {} if "project" in query else PARSED
    extended = {"j": found["j"].decode()} if "j" in found else {}
    assert {name: text.decode() for name, text in found.items()} == {**whole, **extended, **expected}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit 2", ["x", "y"]),
        ("limit 1, 2", ["y", "x|y"]),
        ("limit 2, 5", ["x|y"]),
        ("limit 0", []),
        ("limit 5, 5", []),
        ("where a <> 'x' | limit 1", ["y"]),
        ("limit 1 | where a <> 'x'", []),
    ],
)
def test_a_limit_gives_the_first_logs_of_a_page(logs: Client, query: str, expected: list[str]) -> None:
    """limit returns the first logs of a page in their LogGroups; the headers count these."""
    groups, answer = pull(logs, f"* | {query}")
    given = [one.Value.decode() for group in groups for log in group.Logs for one in log.Contents if one.Key == "a"]
    assert given == expected
    assert (answer.headers["x-log-resultlines"], answer.headers["x-log-rawdatalines"]) == (str(len(expected)), "3")


def test_extracted_fields_are_bounded_a_long_prefix_of_many_names_would_take_hundreds_of_megabytes() -> None:
    """Extracted fields are bounded: a long prefix of many names would take hundreds of megabytes."""
    with LogHubServer(limits=Limits(pull_bytes=2_000_000)) as server, Client(server) as client:
        put(client, {"j": json.dumps({str(number): 1 for number in range(20_000)})})
        where = {"type": "log", "cursor": client.cursor(0, "begin")}
        query = f"* | parse-json -prefix='{'p' * 8000}' j"
        answer = client.get(f"/logstores/{LOGSTORE}/shards/0", **where, query=query)
        assert error_of(answer) == (400, "ParameterInvalid")
        assert "fields from 'j' have more than" in answer.json()["errorMessage"]
        deep = {"j": '{"a": ' * 100_000}
        put(client, deep)
        assert len(fields(client, "* | parse-json j")) == 2


@pytest.mark.parametrize(
    "query", ["parse-json j", "parse-json -path='$.a' j", "parse-kv j, ',', ':'", "parse-csv j as a, b"]
)
def test_taking_apart_ends_in_time(query: str) -> None:
    """An extraction ends at its deadline, also within a long field."""
    group = LogGroup()
    for text in ('{"a": {' + ", ".join(f'"{number}": 1' for number in range(400_000)) + "}}", "{}"):
        group.Logs.add(Time=1).Contents.add(Key="j", Value=text.encode())
    (extraction,) = read_spl(f"* | {query}")
    began = time.monotonic()
    with pytest.raises(ApiError, match="did not end in time"):
        extraction.apply(
            [StoredLogGroup(shard=0, position=1, received=0.0, raw=group.SerializeToString(), count=2)], 1 << 30, 0.0
        )
    assert time.monotonic() - began < 5


def test_a_csv_is_read_in_one_go() -> None:
    """Neither a long delimiter nor quotation marks make a long text slow; a delimiter must not contain the quote."""
    (extraction,) = read_spl(f"* | parse-csv -delim='{'a' * 4000}b' j as a, b")
    began = time.thread_time()
    for text in ("a" * 1_000_000, '"' * 1_000_001, '"a' * 500_000, '""a' * 300_000):
        assert len(list(extraction.find(text, time.monotonic() + 100))) == 1
    assert time.thread_time() - began < 2
    with pytest.raises(ApiError, match="-delim is ',\"': it must not contain -quote"):
        read_spl("* | parse-csv -delim=',\"' j as a")


def test_a_processor_is_refused(logs: Client) -> None:
    """A consumer processor is refused instead of returning all logs."""
    where = {"type": "log", "cursor": logs.cursor(0, "begin"), "processor": "mine"}
    assert error_of(logs.get(f"/logstores/{LOGSTORE}/shards/0", **where)) == (400, "ParameterInvalid")


def test_a_page_is_bounded_before_it_is_sifted() -> None:
    """A reader advances by cursors through pages without a match."""
    with LogHubServer(limits=Limits(pull_bytes=250)) as server, Client(server) as client:
        for text in ("x" * 240, "y" * 240, "wanted"):
            client.put(log_group(text), path="/shards/route", params={"key": "00"})
        cursor, counts = client.cursor(0, "begin"), []
        for _ in range(3):
            groups, answer = client.pull(0, cursor, query="* | where message = 'wanted'")
            counts.append(len(groups))
            cursor = answer.headers["x-log-cursor"]
        assert counts == [0, 0, 1]


def test_fields_with_names_of_the_servers_own_columns_disturb_nothing() -> None:
    """A log's field with the name of an internal column is returned unchanged, and disturbs no calculation."""
    with LogHubServer() as server, Client(server) as client:
        put(client, {"a": "x"}, {"a": "y", "spl 0 0": "theirs", "SPL row": "0"})
        own = {"spl 0 0": b"theirs", "SPL row": b"0"}
        assert fields(client, "* | extend n = upper(a)") == [{"a": b"x", "n": b"X"}, {"a": b"y", "n": b"Y"} | own]


_ROW_OF_ITS_OWN = """* | where $$'$$ <> a))) select {} as "spl row" from "spl table 0" -- '"""


@pytest.mark.parametrize(
    "query",
    [
        "* | extend \"spl row\" = 'abc'",
        '* | project "SPL row"',
        '* | project-rename "spl row" = a',
        '* | where "spl page" is null',
        *(_ROW_OF_ITS_OWN.format(row) for row in ("'abc'", "7", "0", "null", "'-1'", "repeat('1', 5000)")),
    ],
)
def test_a_query_cannot_make_logs(logs: Client, query: str) -> None:
    """A query that uses internal columns, or makes rows that are not logs, is refused."""
    where = {"type": "log", "cursor": logs.cursor(0, "begin"), "query": query}
    answer = logs.get(f"/logstores/{LOGSTORE}/shards/0", **where)
    assert error_of(answer) == (400, "ParameterInvalid")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ('a FROM "spl page"', "not one expression"),
        ("a UNION SELECT a", "not one expression"),
        ("a; SELECT 1", "not one expression"),
        ("a LIMIT 1", "not one expression"),
        ("DISTINCT a", "not one expression"),
        ("a USING SAMPLE 10%", "not one expression"),
        ("a AS b", "not one expression"),
        ("a; DROP TABLE x", "cannot be run"),
        ("(SELECT true)", "a SELECT is not allowed"),
        ("EXISTS(FROM log)", "a SELECT is not allowed"),
        ("a IN (SELECT a FROM log)", "a SELECT is not allowed"),
        ("upper((FROM read_text('/etc/passwd')))", "a SELECT is not allowed"),
        ("read_text('/etc/passwd')", "not among those allowed"),
        ("row_number() OVER ()", "a window is not allowed"),
        ("COLUMNS('a')", "'*' is not allowed"),
        ("upper(*COLUMNS(*))", "'*' is not allowed"),
        ("#1", "the number of a column is not allowed"),
        ("$1", "not one expression"),
        ('"SPL Row"', "'spl '"),
        ('"spl page".a', "'spl '"),
        ("unnest([a, a])", ""),  # the wording differs between the database's versions
        ("count(*)", "cannot be run"),
        ("||".join(["a"] * 400), "nests too deep"),
        ("not " * 1500 + "true", "nests too deep"),
        ("repeat(a, 2000000000) = a", "bytes of memory"),
    ],
)
def test_more_than_one_expression_over_the_logs_fields_is_refused_as_a_value_and_as_a_condition(
    logs: Client, expression: str, message: str
) -> None:
    """More than one expression over the log's fields is refused as a value and as a condition."""
    for query in (f"* | extend x = {expression}", f"* | where true | where {expression}"):
        answer = logs.get(f"/logstores/{LOGSTORE}/shards/0", type="log", cursor=logs.cursor(0, "begin"), query=query)
        assert error_of(answer) == (400, "ParameterInvalid")
        text = answer.json()["errorMessage"]
        assert message in text
        assert "json_execute" not in text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("extend x = $$it's | a, b$$ | project x", b"it's | a, b"),
        (r"extend x = E'it\'s | a, b', y = a | project x", b"it's | a, b"),
        ("extend x = 'it''s | a, b' -- | where false", b"it's | a, b"),
        ("extend x = a/**/|| 'y' /* | where false */ | project x", b"xy"),
    ],
)
def test_texts_and_comments_are_read_as_the_database_reads_them(logs: Client, query: str, expected: bytes) -> None:
    """Signs in quoted texts and comments separate nothing."""
    assert fields(logs, f"* | {query}")[0]["x"] == expected


def test_slow_patterns_and_hundreds_of_conditions_are_answered(logs: Client) -> None:
    """A regular expression that is slow elsewhere and a condition of hundreds of parts are answered."""
    assert fields(logs, "* | where regexp_matches(repeat('a', 30000) || '!', '^(a+)+$')") == []
    assert len(fields(logs, "* | where " + " or ".join(["a = 'x'"] * 700))) == 1


@pytest.fixture(scope="module")
def capitals() -> Iterator[Client]:
    """Yield a client of a logstore with one log, whose names have capitals beyond ASCII."""
    with LogHubServer() as server, Client(server) as client:
        put(client, {"Имя": "x", "имя": "y", "Über": "1"})
        yield client


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("* | where Имя = 'x' | project Имя", {"Имя": b"x"}),
        ('* | extend "Имя" = upper(имя) || upper(Имя) | project-away Über, имя', {"Имя": b"YX"}),
        ("* | project-rename n = Имя, ß = Über | project ß, n", {"ß": b"1", "n": b"x"}),
    ],
)
def test_names_with_capitals_beyond_ascii_are_names(capitals: Client, query: str, expected: dict[str, bytes]) -> None:
    """Names with capitals beyond ASCII are used as sent."""
    assert fields(capitals, query) == [expected]
