"""``query | SELECT …``: SQL over the matching logs, bounded and isolated."""

import json
import logging
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from producer.server import Limits, LogHubServer
from producer.server.sql_engine.allowed import FUNCTIONS, TABLE_FUNCTIONS
from producer.server.sql_engine.engine import open_database
from producer.server.sql_process import SqlProcess
from producer.text.extras import how_to_install
from producer.wire.schema import LogGroup

from ...support.waiting import Call, eventually
from ..client import LOGSTORE, Client, log_group
from ..process import ServerProcess

T = 1_700_000_000


def put(client: Client, *logs: dict[str, str], time: int = T, topic: str = "web") -> None:
    group = LogGroup(Topic=topic)
    group.LogTags.add(Key="pod", Value="p-1")
    for number, fields in enumerate(logs):
        log = group.Logs.add(Time=time + 20 * number)
        for key, value in fields.items():
            log.Contents.add(Key=key, Value=value.encode())
    assert client.put(group.SerializeToString()).status_code == 200


def answer(client: Client, query: str, **params: str) -> Any:
    wanted = {"from": str(T), "to": str(T + 1000), "query": query, **params}
    return client.post_json(f"/logstores/{LOGSTORE}/logs", json.dumps(wanted).encode())


def rows(client: Client, query: str) -> list[list[str]]:
    """Return the rows of a result, and assert that GET finds the same."""
    posted = answer(client, query)
    assert posted.status_code == 200, posted.text
    found = client.get(f"/logstores/{LOGSTORE}", type="log", query=query, **{"from": str(T), "to": str(T + 1000)})
    assert found.json() == posted.json()["data"]
    return [list(row.values()) for row in found.json()]


def refusal(client: Client, query: str) -> str:
    found = answer(client, query)
    assert (found.status_code, found.json()["errorCode"]) == (400, "ParameterInvalid")
    return str(found.json()["errorMessage"])


def put_six(client: Client) -> Client:
    """Store six logs, 20 seconds apart, and return the client."""
    statuses = ["200", "404", "200", "500", "200", "404"]
    latencies = ["1", "2.5", "3", "4", "5", "6"]
    fields = [{"status": s, "latency": t, "path": f"/p{s[0]}"} for s, t in zip(statuses, latencies, strict=True)]
    put(client, *fields)
    return client


@pytest.fixture
def logs(client: Client) -> Client:
    """Return a client of a logstore with six logs."""
    return put_six(client)


@pytest.fixture(scope="module")
def asked() -> Iterator[Client]:
    """Yield such a client for read-only tests: they share a process for statements, which takes a second to start."""
    with LogHubServer() as server, Client(server) as client:
        yield put_six(client)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("* | SELECT count(*)", [["6"]]),
        ("status: 404 | SELECT count(*) AS n FROM log", [["2"]]),
        (f'* | SELECT count(status) FROM "{LOGSTORE}"', [["6"]]),
        ("* | select status, count(*) n group by status order by n desc", [["200", "3"], ["404", "2"], ["500", "1"]]),
        ("* | select sum(latency), max(status) where status >= 404", [["12.5", "500"]]),
        (
            "* | select __time__ - __time__ % 60 t, count(*) group by t order by t",
            [[str(T - 20 + 60 * n), str(c)] for n, c in ((0, 2), (1, 3), (2, 1))],
        ),
        (
            "* | select date_trunc('minute', __time__) t, count(*) group by 1 order by 1 limit 1",
            [["2023-11-14 22:13:00.000", "2"]],
        ),
        ("* | select date_format(from_unixtime(__time__), '%Y-%m-%d %H:%i:%s') limit 1", [["2023-11-14 22:13:20"]]),
        ("* | select status order by __time__ limit 1, 2", [["404"], ["200"]]),
        ("* | select approx_distinct(status), count_if(regexp_like(path, '^/p[45]'))", [["3", "3"]]),
        ("* | select approx_percentile(latency, 0.5) > 0, max_by(path, latency)", [["true", "/p4"]]),
        ('* | select __topic__, __source__, "__tag__:pod" limit 1', [["web", "", "p-1"]]),
        ("* | with few as (select status from log limit 2) select count(*) from few", [["2"]]),
        ("* | select 'limit 1, 2' -- from nowhere\n where status = 500", [["limit 1, 2"]]),
        ("* | select max(missing_no) from (select null as missing_no)", [["null"]]),
        ("* | select status = 200, [1, 2], cast('2020-01-02' as date) limit 1", [["true", "[1, 2]", "2020-01-02"]]),
        ("nothing | select count(*), sum(latency)", [["0", "null"]]),
        ("nothing | select status, path where path like '/p%' and latency > 1 group by status, path", []),
    ],
)
def test_sql_is_run_over_the_logs_that_match(asked: Client, query: str, expected: list[list[str]]) -> None:
    """Counts, groups, time buckets and LogHub's functions work; numeric fields are numbers; FROM log is optional."""
    assert rows(asked, query) == expected


#: Functions and syntax of Presto that DuckDB has under other names or not at all, with their values.
PRESTO = """
    date_diff('second', from_unixtime(10), from_unixtime(70)) | 60
    date_add('day', 1, date '2020-01-01') | 2020-01-02 00:00:00.000
    date_format(date_parse('2020-01-02', '%Y-%m-%d'), '%d.%m.%y %H:%i') | 02.01.20 00:00
    to_unixtime(from_unixtime(5)) | 5.0
    day_of_week(date '2020-01-01') | 3
    element_at(map(array['a'], array[1]), 'a') | 1
    cardinality(split('a,b', ',')) | 2
    array_join(array['a', 'b'], '-') | a-b
    filter(array[1, 2, 3], x -> x > 1) | [2, 3]
    transform(sequence(1, 3), x -> x * 2) | [2, 4, 6]
    contains(array[1], 1) | true
    json_extract_scalar(json_parse('{"a": "x"}'), '$.a') = 'x' | true
    json_format(json_parse('[1]')) | [1]
    regexp_replace('aab', 'a', 'x') | xxb
    bitwise_and(6, 3) | 2
    levenshtein_distance('ab', 'b') | 1
    truncate(1.7) | 1
    arbitrary(status) > 0 | true
    min_by(path, latency) | /p2
    approx_distinct(path) | 3
    count_if(regexp_like(path, '^/p[45]')) | 3
    try_cast('x' as bigint) | null
"""


def test_functions_of_the_service_are_translated(asked: Client) -> None:
    """Presto's functions, lambdas and arrays, which the service has, give the service's values."""
    pairs = [line.strip().split(" | ") for line in PRESTO.strip().splitlines()]
    assert rows(asked, f"* | select {', '.join(text for text, _ in pairs)}") == [[value for _, value in pairs]]


def test_meta_and_headers_have_the_columns_both_parts_of_the_query_and_the_number_of_logs_read(asked: Client) -> None:
    """Meta and headers have the columns, both parts of the query, and the number of logs read."""
    query = "status: 200 | SELECT avg(latency) AS größe,\n count(*)"
    meta = answer(asked, query).json()["meta"]
    assert (meta["hasSQL"], meta["aggQuery"], meta["whereQuery"]) == (True, query.split("| ")[1], "status: 200")
    assert (meta["keys"], meta["columnTypes"]) == (["größe", "count_star()"], ["double", "bigint"])
    assert (meta["progress"], meta["count"], meta["processedRows"]) == ("Complete", 1, 3)
    params = {"type": "log", "query": query, "from": str(T), "to": str(T + 1000)}
    headers = asked.get(f"/logstores/{LOGSTORE}", **params).headers
    assert (headers["x-log-has-sql"], headers["x-log-processed-rows"]) == ("true", "3")
    assert headers["x-log-agg-query"].encode("latin-1").decode() == "SELECT avg(latency) AS größe, count(*)"


def test_a_field_indexed_as_long_is_a_number_and_null_for_other_text_without_the_index_it_is_text(
    client: Client,
) -> None:
    """A field indexed as long is a number, and null for other text; without the index it is text."""
    put(client, {"a": "1", "b": "007", "c": "1"}, {"a": "x", "b": "8", "c": "-2.5e1"})
    assert rows(client, "* | select count(a), max(b), typeof(max(b))") == [["2", "8", "VARCHAR"]]
    assert rows(client, "* | select sum(c)") == [["-24.0"]]
    content = {"keys": {"a": {"type": "long"}, "b": {"type": "text"}}}
    client.post_json(f"/logstores/{LOGSTORE}/index", json.dumps(content).encode())
    assert rows(client, "* | select count(a), sum(a)") == [["1", "1"]]


def test_names_with_capitals_beyond_ascii_are_columns(client: Client) -> None:
    """Names with capitals beyond ASCII are used as sent, and are separate columns."""
    put(client, {"Имя": "x", "имя": "y", "Über": "1"})
    assert rows(client, "* | SELECT Имя, имя, ÜBER") == [["x", "y", "1"]]


def test_logs_of_all_shapes_are_one_table(client: Client) -> None:
    """Missing fields are null, names that differ in case share a column, and any text arrives whole."""
    odd = "日本\x00\"'\\ \n"
    put(client, {"Level": "a"}, {"level": "b", "text": odd}, {'say "x"': "1"})
    for number in range(3):
        client.put(log_group(*["x"] * 5_000, time=T + number * 1000))
    assert sorted(rows(client, "* | select level, count(*) group by level")) == [
        ["a", "1"],
        ["b", "1"],
        ["null", "1001"],
    ]
    assert rows(client, "* | select text from log where text is not null") == [[odd]]
    assert rows(client, '* | select "say ""x""" + 1 from log where "say ""x""" is not null') == [["2"]]
    wide = {"from": "0", "to": str(T + 100_000)}
    assert answer(client, "* | select count(message) n", **wide).json()["data"] == [{"n": "15000"}]


@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_csv('{path}')",
        "select * from read_text('{path}')",
        "select * from '{path}'",
        "select * from glob('{path}')",
        "select * from read_json('http://127.0.0.1:9/x')",
        "copy log to '{path}.copy'",
        "attach '{path}.db'",
        "select 1; attach '{path}.db'",
        "set enable_external_access = true",
        "install httpfs",
        "pragma database_list",
        "create table x (y int)",
        "insert into raw values (1)",
        "select * from sys",
        "select getenv('HOME') from log",
        "select",
        "select (",
        "select nosuchfield from log",
        "tail",
    ],
)
def test_sql_has_no_way_out(asked: Client, tmp_path: Path, statement: str) -> None:
    """Files, the network, settings, other statements and the process's variables are refused in words."""
    path = tmp_path / "secret.csv"
    path.write_text("a\nvery secret\n")
    message = refusal(asked, "* | " + statement.format(path=path))
    assert "very secret" not in message
    assert [one.name for one in tmp_path.iterdir()] == ["secret.csv"]


#: Syntax that reads more than the logs, runs text, writes, waits, or makes types from text: in FROM, as a value, as a
#: whole.
TABLES = """
    json_execute_serialized_sql(json_serialize_sql('select 42')); query('select 42'); query_table('log'); "QUERY"('x')
    main.query('select 42'); arrow_scan(NULL::POINTER, NULL::POINTER, NULL::POINTER); pandas_scan(1); seq_scan('log')
    read_blob('/x'); read_parquet('/x'); read_duckdb('/x'); sniff_csv('/x'); duckdb_settings(); duckdb_secrets()
    pragma_version(); pragma_table_info('log'); test_all_types(); repeat_row(1, num_rows=10); force_checkpoint()
    summary((from log)); histogram(log, status); enable_logging(); create_external_resource('x'); upper('x')
    information_schema.tables; pg_tables; duckdb_tables; sqlite_master; "raw 0"; main.log; log at (version => 3)
    (show tables); (describe log); (summarize log); (values (getenv('HOME'))); (pivot log on path using max(status))
"""
VALUES = """
    getenv('HOME'); "GetEnv"('HOME'); system.main.getenv('HOME'); 'HOME'.getenv(); current_setting('memory_limit')
    getvariable('x'); nextval('s'); setseed(0.5); write_log('x'); sleep_ms(10); json_serialize_plan('select 1')
    json_deserialize_sql('{}'); from_json('1', '"POINTER"'); cast_to_type(1, 'x'); list_aggregate([1], 'combine_aggr')
    finalize(path); status::pointer; status::struct(x pointer[]); status::"AGGREGATE_STATE<sum(integer)::hugeint>"
    version(); current_query(); stats(status); variant_bytes_to_variant('x')
    (from query('select 42')); exists (from duckdb_settings()); 1 in (from query('select 42'))
    list_transform([1], lambda x: getenv('HOME')); sum(1) filter (where getenv('HOME') = ''); ?; $1
    sum(1) over (order by getenv('HOME')); lag(1, 1, getenv('HOME')) over (); string_agg(path, ',' order by getenv('A'))
    {'a': getenv('HOME')}; columns(lambda c: getenv(c) = ''); * replace (getenv('HOME') as path)
"""
STATEMENTS = """
    with a as (insert into log values (1) returning *) select * from a; with a as (delete from log returning 1) select 1
    with a as (update log set status = 1 returning 1) select 1; with a as (copy log to 'x') select 1
    with a as (from duckdb_settings), duckdb_settings as (select 1) select * from a; with a as (from a) select * from a
    with recursive pg_tables as (from pg_tables union all from pg_tables) select * from pg_tables
    select * from (with pg_tables as (select 1) from pg_tables), pg_tables; with q as (select 1) select * from main.q
    with recursive x as (from query('select 1') union all from x) select * from x; with a as (select 1) delete from log
    select 1 from log order by getenv('HOME'); select 1 from log limit (select count(*) from duckdb_settings())
    select 1 from log limit getenv('HOME'); select distinct on (getenv('HOME')) 1 from log; select 1 into x
    select 1 from log group by grouping sets ((getenv('HOME'))); select 1 from log qualify getenv('HOME') = ''
    select 1 from log join query('select 42 a') using (a); select 1 union all from query('select 42')
    select * from log, lateral (from query('select 42')); select * from range((select count(*) from duckdb_settings()))
    select * from log pivot (max(getenv('HOME')) for path in ('x'))
    select max(1) over w from log window w as (partition by getenv('HOME'))
"""


@pytest.mark.parametrize(("form", "cases"), [("select * from {}", TABLES), ("select {}", VALUES), ("{}", STATEMENTS)])
def test_running_text_reading_the_catalog_writing_and_waiting_are_refused_by_the_syntax_tree(
    asked: Client, form: str, cases: str
) -> None:
    """Running text, reading the catalog, writing and waiting are refused by the syntax tree, wherever they are."""
    refused = (
        "not among those allowed",
        "there is no table",
        "is not allowed in it",
        "must be one SELECT",
        "syntax error",
    )
    for case in (one.strip() for line in cases.strip().splitlines() for one in line.split("; ")):
        message = refusal(asked, "* | " + form.format(case))
        assert any(text in message for text in refused), f"{case}: {message}"


def test_every_name_that_is_allowed_is_one_of_the_database() -> None:
    """DuckDB knows every allowed function, so that a typing error in the list is found."""
    connection = open_database(32 * 1024 * 1024)
    known = {name.lower() for (name,) in connection.execute("SELECT function_name FROM duckdb_functions()").fetchall()}
    connection.close()
    assert (FUNCTIONS | TABLE_FUNCTIONS) - known == set()


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("select * from log a join log b using (status)", 14),
        (
            "with recursive n as (select 1 a union all select a + 1 from n where a < 3) select a from n, log limit 99",
            18,
        ),
        ("with a as (from log), b as (from a where status = 200) select b.path.upper() from b", 3),
        ("select path, row_number() over w, list_transform([1], lambda x: x + 1) from log window w as (order by 1)", 6),
        ("select * from (select status, path, latency from log) pivot (max(latency) for path in ('/p2', '/p4'))", 3),
        ("select t.x, try_cast(t.x as integer[]), j.value from unnest(['[1]']) t(x), json_each(t.x) j", 1),
        (
            "select timezone('Europe/Berlin', now()), uuid(), now(), 1.5::decimal(3, 1), {'a': [1]} limit 1",
            1,
        ),
    ],
)
def test_joins_common_table_expressions_windows_pivot_nested_values_and_times_are_allowed(
    asked: Client, statement: str, count: int
) -> None:
    """Joins, common table expressions, windows, PIVOT, nested values and times are allowed."""
    assert len(answer(asked, f"* | {statement}").json()["data"]) == count


def test_the_process_can_open_nothing(logs: Client, server: LogHubServer) -> None:
    """The process can open no file or socket, whatever a statement makes the database do."""
    rows(logs, "* | select count(*)")
    (pid,) = server._service.sql.pids()
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert [line.split()[-3:-1] for line in limits.splitlines() if line.startswith("Max open files")] == [["0", "0"]]


def test_a_mistake_in_a_statement_costs_no_process(logs: Client, server: LogHubServer) -> None:
    """A statement that is refused or fails leaves nothing behind: the same process runs the next."""
    rows(logs, "* | select count(*)")
    first = server._service.sql.pids()
    for mistake in ("select nosuch", "select getenv('x')", "select cast('x' as integer)", "select ("):
        refusal(logs, f"* | {mistake}")
    assert rows(logs, "* | select count(*)") == [["6"]]
    assert server._service.sql.pids() == first


def test_a_result_is_bounded() -> None:
    """Without LIMIT there are 100 rows; too large results, too many logs and too much memory are refused."""
    limits = Limits(sql_rows=150, sql_result_rows=120, sql_bytes=32 * 1024 * 1024)
    with LogHubServer(limits=limits) as server, Client(server) as client:
        client.put(log_group(*["x"] * 150))
        assert len(rows(client, "* | select message")) == 100
        assert len(rows(client, "* | select message limit 120")) == 120
        assert "120 rows" in refusal(client, "* | select message limit 130")
        heavy = "select count(distinct x) from (select md5(range::varchar) x from range(20000000))"
        assert "memory" in refusal(client, f"* | {heavy}")
        client.put(log_group("y", time=T + 200))
        assert "150 logs" in refusal(client, "* | select message")


def test_a_write_is_answered_while_a_statement_runs() -> None:
    """A write is answered while a statement runs."""
    endless = "select count(*) from range(1000000) a, range(1000000) b where a.range * b.range % 1000001 = 7"
    with LogHubServer(limits=Limits(search_seconds=1)) as server, Client(server) as client, Client(server) as other:
        client.put(log_group("x"))
        thread = threading.Thread(target=answer, args=(client, f"* | {endless}"))
        thread.start()
        eventually(lambda: server._service.searches.free == 1, "the statement runs")
        assert other.put(log_group("y")).status_code == 200
        assert thread.is_alive()
        thread.join()


def test_without_the_extra_sql_is_refused_with_the_package_to_install_and_keywords_work(
    logs: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the extra, SQL is refused with the package to install, and keywords work."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert how_to_install("sql") in refusal(logs, "* | select 1")
    assert answer(logs, "status: 404").json()["meta"]["count"] == 2


@pytest.mark.parametrize("text", ["/*" * 4000, "'" * 8001, '"' * 8001, "limit " + "1" * 8000, "(" * 8000, "x" * 9000])
def test_no_text_holds_the_server_up(asked: Client, text: str) -> None:
    """An invalid statement is refused at once, however it is nested or left open."""
    started = time.process_time()
    refusal(asked, f"* | select {text}")
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "statement",
    [
        "select repeat('x', 2000000000)",
        "select range(300000000)",
        "select string_agg(repeat('x', 30000000), '') from range(40)",
    ],
)
def test_a_value_of_gigabytes_is_refused_in_words(statement: str) -> None:
    """A value of gigabytes is refused in words; the server does not grow and goes on."""
    with LogHubServer(limits=Limits(sql_bytes=32 * 1024 * 1024)) as server, Client(server) as client:
        client.put(log_group("x"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert "memory" in refusal(client, f"* | {statement}")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024
        assert rows(client, "* | select count(*)") == [["1"]]


def test_a_statement_that_takes_too_long_is_ended() -> None:
    """A statement whose translation or run does not end is ended at its deadline: the client gets an error, and its
    place is free.
    """
    with LogHubServer(limits=Limits(search_seconds=1, searches=1)) as server, Client(server) as client:
        client.put(log_group("x"))
        for query in (ENDLESS, f"* | select a{'.f()' * 2000}"):
            found = answer(client, query)
            assert (found.status_code, found.json()["errorCode"]) == (500, "RequestTimeout")
        assert rows(client, "* | select count(*)") == [["1"]]
        assert server._service.searches.free == 1


def test_the_start_of_a_process_takes_nothing_of_the_time_of_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of a process does not count as the statement's time."""
    with LogHubServer(limits=Limits(search_seconds=2)) as server, Client(server) as client:
        client.put(log_group("x"))
        take = server._service.sql.take

        def taken(*args: bool) -> SqlProcess:
            process = take(*args)
            os.kill(process.pid, signal.SIGSTOP)
            threading.Timer(2.5, os.kill, (process.pid, signal.SIGCONT)).start()
            return process

        monkeypatch.setattr(server._service.sql, "take", taken)
        found = answer(client, "* | select count(*) as n")
        assert (found.status_code, found.json().get("data")) == (200, [{"n": "1"}])


def test_a_client_that_leaves_while_a_process_starts_frees_its_place_at_once(
    server: LogHubServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that leaves while a process starts frees its place at once, and the next statement uses the process."""
    client.put(log_group("x"))
    take, may_start = server._service.sql.take, threading.Event()

    def taken(*args: bool) -> SqlProcess:
        assert may_start.wait(60)
        return take(*args)

    monkeypatch.setattr(server._service.sql, "take", taken)
    searches = server._service.searches
    with connected_with(server, client, "* | select count(*)"):
        eventually(lambda: searches.free < server._service.limits.searches, "it waits for a process")
    eventually(lambda: searches.free == server._service.limits.searches, "its place is free", 10)
    may_start.set()
    eventually(server._service.sql.pids, "the process has started", 60)
    assert rows(client, "* | select count(*)") == [["1"]]
    assert len(server._service.sql.pids()) == 1


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_statement_ends_when_its_client_has_left(server: LogHubServer, client: Client, *, is_reset: bool) -> None:
    """When its client closes or resets, the statement's process is killed and its place is free."""
    client.put(log_group("x"))
    with connected_with(server, client, ENDLESS) as connection:
        eventually(server._service.sql.pids, "the statement runs")
        if is_reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: not server._service.sql.pids(), "it ended", 10)
    eventually(lambda: server._service.searches.free == server._service.limits.searches, "its place is free", 10)
    assert rows(client, "* | select count(*)") == [["1"]]


@contextmanager
def connected_with(server: LogHubServer, client: Client, query: str) -> Iterator[socket.socket]:
    """Yield a connection that sent GetLogs, closed at the end of the block."""
    params = {"type": "log", "query": query, "from": str(T), "to": str(T + 9)}
    head = client.sign("GET", f"/logstores/{LOGSTORE}", params, {}, b"")
    lines = [f"GET /logstores/{LOGSTORE}?{urlencode(params)} HTTP/1.1", *(f"{k}: {v}" for k, v in head.items())]
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        yield connection


def test_a_process_is_used_again_while_it_is_fit(logs: Client, server: LogHubServer) -> None:
    """One process runs statement after statement, each over its own tables, and none starts before the first."""
    assert server._service.sql.pids() == []
    rows(logs, "* | select count(*)")
    first = server._service.sql.pids()
    assert rows(logs, "nothing | select count(*)") == [["0"]]
    assert len(first) == 1
    assert server._service.sql.pids() == first


def killed(pid: int) -> None:
    """Kill the child and wait until it is dead; the server waits for it, too, and may be the first."""
    os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_process_that_died_is_replaced(logs: Client, server: LogHubServer) -> None:
    """When a process was killed from outside, the next statement runs."""
    rows(logs, "* | select count(*)")
    (first,) = server._service.sql.pids()
    killed(first)
    assert rows(logs, "* | select count(*)") == [["6"]]
    assert first not in server._service.sql.pids()


def test_a_process_that_dies_before_it_takes_a_statement_is_replaced(
    logs: Client, server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process killed between its check and its use fails no statement."""
    rows(logs, "* | select count(*)")
    (first,) = server._service.sql.pids()
    take = server._service.sql.take

    def taken(*args: bool) -> SqlProcess:
        process = take(*args)
        if process.pid == first:
            killed(first)
        return process

    monkeypatch.setattr(server._service.sql, "take", taken)
    assert rows(logs, "* | select count(*)") == [["6"]]
    assert first not in server._service.sql.pids()


def test_the_process_has_none_of_the_secrets(
    logs: Client, server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process for SQL has none of the server's environment."""
    monkeypatch.setenv("LOGHUB_SERVER_ACCESS_KEY_SECRET", "very secret")
    rows(logs, "* | select count(*)")
    (pid,) = server._service.sql.pids()
    assert b"very secret" not in Path(f"/proc/{pid}/environ").read_bytes()


ENDLESS = "* | select levenshtein(repeat('a', 1000000), repeat('b', 1000000))"


def is_dead(pid: int) -> bool:
    """Return True if the process has ended; an orphan may be a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def children_of(pid: int) -> list[int]:
    return [int(one) for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]


def test_no_process_outlives_a_server_that_was_killed() -> None:
    """A server killed during an uninterruptible statement leaves no process behind."""
    with ServerProcess() as server, Client(server) as client:
        client.put(log_group("x"))
        call = Call(lambda: answer(client, ENDLESS))
        eventually(lambda: children_of(server.process.pid), "the statement runs")
        (pid,) = children_of(server.process.pid)
        server.process.kill()
        eventually(lambda: is_dead(pid), "it ended")
        call.thread.join()
        assert call.error is not None


def test_stopping_during_a_statement_cuts_its_client_logs_no_failure_and_ends_all_processes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Stopping during a statement cuts its client, logs no failure, and ends all processes."""
    with LogHubServer() as server, Client(server) as client:
        client.put(log_group("x"))
        call = Call(lambda: answer(client, ENDLESS))
        eventually(server._service.sql.pids, "the statement runs")
        (pid,) = server._service.sql.pids()
        server.stop(grace=0)
        call.thread.join()
        assert call.error is not None
    assert is_dead(pid)
    ours = [record for record in caplog.records if record.name.startswith("loghub.server")]
    assert [record for record in ours if record.levelno >= logging.WARNING] == []
