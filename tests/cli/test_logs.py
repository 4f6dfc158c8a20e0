"""The commands that send, search and follow logs, and that list and create projects and logstores."""

import csv
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from producer import LogItem, Producer, ProducerConfig, ProjectConfig
from producer.cli import main
from producer.cli.output import writer
from producer.cli.search import _write
from producer.cli.times import shown, time_of
from producer.reading.search import LogstoreSearch
from producer.server import LogHubServer
from producer.server.faults import answer
from producer.server.store.log_groups import StoredLog
from producer.wire.reserved import free_name
from producer.wire.schema import LogGroup
from tests.server.client import Client, log_group
from tests.support.waiting import eventually

Run = Callable[..., tuple[int, str, str]]

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def hub() -> Iterator[LogHubServer]:
    with LogHubServer() as server:
        yield server


@pytest.fixture
def server(hub: LogHubServer, config_file: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogHubServer]:
    """Set an environment that names a server; each test has a logstore of its own."""
    settings = {
        "ENDPOINT": hub.endpoint,
        "ACCESS_KEY_ID": hub.access_key_id,
        "ACCESS_KEY_SECRET": hub.access_key_secret,
        "PROJECT": "cli",
        "LOGSTORE": f"store-{next(_NUMBERS)}",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"LOGHUB_{name}", value)
    yield hub
    hub.faults.clear()


@pytest.fixture
def run(server: LogHubServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command, and returns the exit code and the output."""

    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def stored(server: LogHubServer) -> list[dict[str, str]]:
    """Return the fields of every log in the test's logstore."""
    logs = server.logs("cli", os.environ["LOGHUB_LOGSTORE"])
    return [{key: str(value) for key, value in log.contents} for log in logs]


@pytest.fixture
def filled(server: LogHubServer) -> LogHubServer:
    keys = {"access_key_id": server.access_key_id, "access_key_secret": server.access_key_secret}
    with Producer(ProjectConfig("cli", endpoint=server.endpoint, **keys)) as producer:
        stream = producer.stream("cli", os.environ["LOGHUB_LOGSTORE"], topic="t", source="s")
        stream.send_many([{"n": str(n), "level": "ERROR" if n == 1 else "INFO"} for n in range(3)])
    return server


def test_send_delivers_each_argument_as_a_log_and_prints_the_number(run: Run, server: LogHubServer) -> None:
    """`send` delivers each argument as a log, and prints the number."""
    assert run("send", "one", "two", "--topic", "x") == (0, "", "2 delivered\n")
    assert stored(server) == [{"content": "one"}, {"content": "two"}]
    assert {log.topic for log in server.logs("cli", os.environ["LOGHUB_LOGSTORE"])} == {"x"}


@pytest.mark.parametrize(
    ("form", "text", "found"),
    [
        ("lines", "a\r\n\nb", [{"content": "a"}, {"content": "b"}]),
        ("lines", "10%\r20%\r\nb", [{"content": "10%\r20%"}, {"content": "b"}]),
        ("json", '{"a": 1, "b": "x"}\n{"b": "y"}\n', [{"a": "1", "b": "x"}, {"b": "y"}]),
        ("csv", 'a,b\n1,"x\ny"\n2,z\n', [{"a": "1", "b": "x\ny"}, {"a": "2", "b": "z"}]),
    ],
)
def test_send_reads_the_standard_input(
    run: Run, server: LogHubServer, form: str, text: str, found: list[dict[str, str]]
) -> None:
    """`send` reads lines, JSON lines or CSV from the standard input, and skips empty lines."""
    dash = ["-"] if form == "json" else []
    assert run("send", *dash, "--format", form, stdin=text) == (0, "", "2 delivered\n")
    assert stored(server) == found


@pytest.mark.parametrize(
    ("form", "text", "told"),
    [
        ("json", '{"a": 1}\n[2]\n{"a": 3}\n', "line 2: must be a JSON object, got list"),
        ("json", '{"a": 1}\n{"a"\n{"a": 3}\n', "line 2: "),
        ("csv", "a,b\n1,1\n2\n3,3\n", "line 3: 1 values for 2 fields"),
    ],
)
def test_a_line_that_is_not_a_log_is_reported_the_others_are_sent_and_the_exit_code_is_1(
    run: Run, server: LogHubServer, form: str, text: str, told: str
) -> None:
    """A line that is not a log is reported, the others are sent, and the exit code is 1."""
    code, _, err = run("send", "--format", form, stdin=text)
    assert (code, len(stored(server))) == (1, 2)
    assert told in err
    assert err.endswith("2 delivered, 1 not sent\n")


def test_send_stumbles_over_no_line(run: Run, server: LogHubServer) -> None:
    """`send` rejects deeply nested JSON, reports an unreadable first line of CSV as a usage error, and drops a BOM."""
    code, _, err = run("send", "--format", "json", stdin="[" * 100_000 + '\n{"a": 1}\n')
    assert (code, err) == (1, "line 1: the JSON is nested too deeply\n1 delivered, 1 not sent\n")
    code, _, err = run("send", "--format", "csv", stdin=f"{'x' * 9_000_000},b\n1,2\n")
    assert (code, err) == (
        2,
        "producer send: the first line names no fields: field larger than field limit (8388608)\n",
    )
    assert run("send", "--format", "csv", stdin="\ufefflevel\nWARN\n")[0] == 0
    assert run("send", "--format", "json", stdin='\ufeff{"level": "INFO"}\n')[0] == 0
    assert stored(server) == [{"a": "1"}, {"level": "WARN"}, {"level": "INFO"}]


def test_a_closed_standard_error_is_not_an_error_and_its_messages_do_not_go_to_the_output(server: LogHubServer) -> None:
    """A closed standard error is not an error, and its messages do not go to the output."""
    command = [sys.executable, "-m", "producer", "send", "hello"]
    ended = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *command], stdout=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"")
    assert stored(server) == [{"content": "hello"}]


def test_send_reports_undelivered_logs_with_the_servers_reason_once_and_exits_with_1(
    run: Run, server: LogHubServer
) -> None:
    """`send` reports undelivered logs with the server's reason once, and exits with 1."""
    server.faults.add(answer(400, "InvalidFormat", "not so"))
    code, _, err = run("send", "one", "two")
    assert code == 1
    assert err.endswith("0 delivered, 2 not delivered\n2 failed: InvalidFormat: not so\n")


def test_search_prints_matching_logs_in_order_of_time_as_json_lines_without_a_terminal(
    run: Run, filled: LogHubServer
) -> None:
    """`search` prints matching logs in order of time, as JSON lines without a terminal, and reports the limit."""
    code, out, err = run("search")
    logs = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [log["n"] for log in logs] == ["0", "1", "2"]
    assert {(log["__topic__"], log["__source__"]) for log in logs} == {("t", "s")}
    assert [json.loads(line)["n"] for line in run("search", "level: ERROR")[1].splitlines()] == ["1"]
    code, out, err = run("search", "--limit", "2", "--oldest")
    assert (code, len(out.splitlines())) == (0, 2)
    assert "the oldest 2 logs; there are more (--limit)" in err
    assert run("search", "--from", "-1h", "--to", "-30m")[:2] == (0, "")


def test_of_several_endpoints_the_first_that_answers_is_searched(run: Run, filled: LogHubServer) -> None:
    """``--endpoint`` takes several, separated by commas, as it does for sending."""
    code, printed, _ = run("search", "--endpoint", f"http://127.0.0.1:1,{filled.endpoint}")
    assert (code, printed.count("\n")) == (0, 3)


def test_every_form_of_output_holds_the_same(run: Run, filled: LogHubServer) -> None:
    """Every output format has the same values, and terminal control characters are escaped."""
    run("send", "\x1b[31mred\x07")
    as_json = json.loads(run("search", "-o", "json")[1])
    assert len(as_json) == 4
    assert [dict(row) for row in csv.DictReader(io.StringIO(run("search", "-o", "csv")[1]))] == [
        {"__source__": "", "content": "", "n": "", "level": "", **log} for log in as_json
    ]
    table = run("search", "-o", "table")[1]
    assert len(table.splitlines()) == 5
    assert "\\x1b[31mred\\x07" in table
    assert "\x1b" not in table


def test_search_turns_the_pages(run: Run, server: LogHubServer) -> None:
    """`search` reads several pages, with each log once."""
    run("send", "--format", "lines", stdin="".join(f"{n}\n" for n in range(250)))
    for order in ((), ("--oldest",)):
        logs = json.loads(run("search", "--limit", "240", "-o", "json", *order)[1])
        assert len({log["content"] for log in logs}) == 240
    assert len(json.loads(run("search", "--limit", "1000", "-o", "json")[1])) == 250


def test_pull_has_everything_of_each_shard(run: Run, filled: LogHubServer) -> None:
    """`pull` prints all logs of each shard by cursors, with a shard and a limit; an unknown shard is an error."""
    logs = [json.loads(line) for line in run("pull")[1].splitlines()]
    assert sorted(log["n"] for log in logs) == ["0", "1", "2"]
    assert all(log.keys() >= {"__time__", "__topic__", "__tag__:__pack_id__"} for log in logs)
    assert len(run("pull", "--limit", "1")[1].splitlines()) == 1
    by_shard = [run("pull", "--shard", shard)[1].splitlines() for shard in ("0", "1")]
    assert sorted(map(len, by_shard)) == [0, 3]
    assert run("pull", "--from", "-1h", "--to", "-30m")[:2] == (0, "")
    for flag in ("--from", "--to"):
        code, out, told = run("pull", flag, "soon")
        assert (code, out) == (2, "")
        assert told.startswith(f"producer pull: {flag} must be now, a time ago")
    assert run("pull", "--shard", "7")[2] == "producer pull: --shard 7: there is no such shard; the shards are 0, 1\n"


def test_tail_prints_the_newest_logs_newest_last_with_f_it_prints_each_new_log_once_up_to_the_limit(
    run: Run, filled: LogHubServer
) -> None:
    """`tail` prints the newest logs, newest last; with -f it prints each new log once, up to the limit."""
    assert [json.loads(line)["n"] for line in run("tail", "-n", "2")[1].splitlines()] == ["1", "2"]
    assert run("tail", "-n", "1", "-o", "table")[1].endswith(" n=2 level=INFO\n")

    def send() -> None:
        eventually(lambda: any(request.operation == "PullLogs" for request in filled.requests))
        with Producer(
            ProjectConfig(
                "cli",
                endpoint=filled.endpoint,
                access_key_id=filled.access_key_id,
                access_key_secret=filled.access_key_secret,
            )
        ) as producer:
            # A sender may use the time's name for a field.
            for more in ({"content": "skipped"}, {"content": "come 1", "__time__": "no time"}, {"content": "come 2"}):
                producer.send("cli", os.environ["LOGHUB_LOGSTORE"], more)

    filled.clear_requests()
    sender = threading.Thread(target=send)
    sender.start()
    code, out, _ = run("tail", "-f", "-n", "0", "--grep", "come", "--limit", "2", "--interval", "0.05")
    sender.join()
    assert code == 0
    assert [json.loads(line)["content"] for line in out.splitlines()] == ["come 1", "come 2"]


def test_an_outage_is_reported_and_does_not_end_tail_f_a_permanent_error_does(run: Run, filled: LogHubServer) -> None:
    """An outage is reported and does not end `tail -f`; a permanent error does."""
    filled.faults.add(answer(500, "InternalServerError", "not now"), operation="PullLogs", times=7)

    def send() -> None:
        eventually(lambda: sum(request.operation == "PullLogs" for request in filled.requests) >= 7)
        keys = {"access_key_id": filled.access_key_id, "access_key_secret": filled.access_key_secret}
        with Producer(ProjectConfig("cli", endpoint=filled.endpoint, **keys)) as producer:
            producer.send("cli", os.environ["LOGHUB_LOGSTORE"], {"content": "after"})

    filled.clear_requests()
    sender = threading.Thread(target=send)
    sender.start()
    code, out, err = run("tail", "-f", "-n", "0", "--limit", "1", "--interval", "0.02")
    sender.join()
    assert (code, json.loads(out)["content"]) == (0, "after")
    assert err.count("InternalServerError: not now") == 1
    filled.faults.add(answer(404, "LogStoreNotExist"), operation="PullLogs")
    assert run("tail", "-f", "-n", "0")[0] == 1


def test_ctrl_c_ends_tail_f_with_one_line_and_130_and_closes_the_connection(run: Run, filled: LogHubServer) -> None:
    """Ctrl-C ends `tail -f` with one line and 130, and closes the connection."""

    def interrupt() -> None:
        eventually(lambda: any(request.operation == "PullLogs" for request in filled.requests))
        os.kill(os.getpid(), signal.SIGINT)

    filled.clear_requests()
    beside = threading.Thread(target=interrupt)
    beside.start()
    code, _, err = run("tail", "-f", "-n", "0", "--interval", "60")
    beside.join()
    assert (code, err) == (130, "producer tail: interrupted\n")


def test_the_server_counts_selects_and_finds_neighbours(run: Run, filled: LogHubServer) -> None:
    """`count`, `sql`, `context` and `projects` work against the embedded LogHub."""
    assert run("count", "level: INFO", "-o", "table") == (0, "2\n", "")
    parts = [json.loads(line) for line in run("count", "--histogram", "--from", "-1h")[1].splitlines()]
    assert sum(part["count"] for part in parts) == 3
    select = "SELECT level, count(*) AS logs GROUP BY level ORDER BY level"
    assert run("sql", select, "-o", "csv") == (0, "level,logs\nERROR,1\nINFO,2\n", "")
    assert run("sql", f"level: INFO | {select}", "-o", "csv")[1] == "level,logs\nINFO,2\n"
    (log,) = json.loads(run("search", "level: ERROR", "--pack-meta", "-o", "json")[1])
    around = ("context", log["__tag__:__pack_id__"], log["__pack_meta__"], "-A", "0", "-o", "json")
    assert [(each["__index_number__"], each["n"]) for each in json.loads(run(*around)[1])] == [("-1", "0"), ("0", "1")]
    assert "cli" in [project["projectName"] for project in json.loads(run("projects", "-o", "json")[1])]


@pytest.mark.parametrize("asked", [["*", "--pack-meta"], ['way: "a|b"']])
def test_a_query_with_pack_meta_or_a_quoted_bar_is_paged_with_each_log_once(
    run: Run, server: LogHubServer, asked: list[str]
) -> None:
    """A query with `with_pack_meta` or a quoted bar is paged, with each log once."""
    with Producer(ProjectConfig("cli", **server.connection)) as producer:
        stream = producer.stream("cli", os.environ["LOGHUB_LOGSTORE"])
        stream.send_many([{"n": n, "way": "a|b"} for n in range(250)])
    found = [json.loads(line)["n"] for line in run("search", *asked, "--limit", "300", "-o", "jsonl")[1].splitlines()]
    assert sorted(map(int, found)) == list(range(250))


def test_count_adds_the_parts_of_the_histogram(run: Run, server: LogHubServer) -> None:
    """`count` prints a number or each part, and repeats requests for an incomplete histogram."""
    parts = [{"from": 1, "to": 2, "count": 3, "progress": "Complete"}, {"from": 2, "to": 3, "count": 4}]
    half = json.dumps([{**parts[0], "progress": "Incomplete"}]).encode()
    whole = json.dumps(parts).encode()
    server.faults.add(answer(200, "", body=half), times=1)
    server.faults.add(answer(200, "", body=whole))
    assert run("count", "level: ERROR", "-o", "table") == run("count", "level: ERROR") == (0, "7\n", "")
    assert server.requests[-1].query["type"] == "histogram"
    assert server.requests[-1].query["query"] == "level: ERROR"
    assert run("count", "-o", "jsonl")[1] == '{"count": 7}\n'
    assert run("count", "--histogram", "-o", "csv")[1] == "from,to,count\n1,2,3\n2,3,4\n"
    assert run("count", "--histogram", "-o", "table")[1].splitlines()[1].startswith(shown(1))


def test_sql_prints_the_rows(run: Run, server: LogHubServer) -> None:
    """`sql` prints rows without the service's own columns; a statement without a query covers all logs."""
    rows = [{"__time__": "1", "__source__": "", "level": "INFO", "logs": "2"}]
    body = json.dumps({"meta": {"progress": "Complete", "count": 1}, "data": rows}).encode()
    server.faults.add(answer(200, "", body=body))
    assert run("sql", "SELECT level, count(*) AS logs GROUP BY level", "-o", "csv") == (0, "level,logs\nINFO,2\n", "")


@pytest.mark.parametrize(
    "alone",
    [
        "SELECT level || 'a|b' AS x",
        "select 1",
        "\nWITH t AS (SELECT 1) SELECT * FROM t",
        "(SELECT 1) UNION (SELECT 'a|b')",
        "select*,'|'",
    ],
)
def test_sql_alone_is_over_all_logs_whatever_is_in_it(run: Run, alone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``|`` in a text, or as ``||``, does not end the query; a query before the SQL stays."""
    asked: list[str] = []
    monkeypatch.setattr(LogstoreSearch, "logs", lambda _, wanted: asked.append(wanted.query) or [])
    with_queries = [f"* | {alone}", f'"a|b" | {alone}', f"level: ERROR | {alone}", f"with timeout | {alone}"]
    for statement in (alone, *with_queries):
        assert run("sql", statement)[0] == 0
    assert asked == [f"* | {alone}", *with_queries]


@pytest.mark.parametrize(("newest", "form"), [(True, "csv"), (False, "table")])
def test_if_a_page_fails_the_logs_found_before_it_are_printed_in_order_of_time_with_their_number(
    run: Run, server: LogHubServer, newest: bool, form: str
) -> None:
    """If a page fails, the logs found before it are printed in order of time with their number."""
    times = range(200, 100, -1) if newest else range(101, 201)
    page = [{"__time__": str(time), "__source__": ""} for time in times]
    body = json.dumps({"meta": {"progress": "Complete", "count": 100}, "data": page}).encode()
    server.faults.add(answer(200, "", body=body), times=1)
    server.faults.add(answer(404, "LogStoreNotExist", "gone"))
    asked = ["search", "--limit", "150", "-o", form, *([] if newest else ["--oldest"])]
    code, out, err = run(*asked)
    lines = out.splitlines()
    assert (code, len(lines), lines[0].split(",")[0].split()[0]) == (1, 101, "__time__")
    assert lines[1:] == sorted(lines[1:])
    assert err.index(f"only the {'newest' if newest else 'oldest'} 100 logs") < err.index("LogStoreNotExist")
    assert run(*asked)[1] == ""


@pytest.mark.parametrize("newest", [True, False])
def test_a_closed_pipe_as_with_head_1_is_not_reported_as_a_failed_page(
    capsys: pytest.CaptureFixture[str], newest: bool
) -> None:
    """A closed pipe, as with ``head -1``, is not reported as a failed page."""

    class Closed:
        def write(self, rows: Iterable[object]) -> None:
            for _ in rows:
                raise BrokenPipeError

        def close(self) -> None:
            pass

    with pytest.raises(BrokenPipeError):
        _write(Closed(), iter([[{"a": "1"}], [{"a": "2"}]]), newest_first=newest)
    assert capsys.readouterr().err == ""


def test_after_ctrl_c_search_prints_the_logs_found_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    """After Ctrl-C `search` prints the logs found so far."""

    def pages() -> Iterator[list[dict[str, str]]]:
        yield [{"a": "2"}, {"a": "1"}]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _write(writer("jsonl"), pages(), newest_first=True)
    out, err = capsys.readouterr()
    assert (out, err) == ('{"a": "1"}\n{"a": "2"}\n', "only the newest 2 logs were found before this:\n")


def test_search_refuses_sql(run: Run, filled: LogHubServer) -> None:
    """`search` refuses SQL, and names the command for it."""
    code, out, err = run("search", "* | SELECT n ORDER BY n", "--limit", "1000")
    assert (code, out) == (2, "")
    assert "`producer sql`" in err


def test_context_shows_the_neighbours(run: Run, server: LogHubServer) -> None:
    """`context` shows the given numbers of logs before and after one."""
    body = json.dumps({"progress": "Complete", "logs": [{"__index_number__": "0", "content": "x"}]}).encode()
    server.faults.add(answer(200, "", body=body))
    assert run("context", "ID-1", "0|MTI=|3", "-B", "1", "-A", "0", "-o", "csv")[1] == "__index_number__,content\n0,x\n"
    query = server.requests[-1].query
    assert (query["pack_id"], query["pack_meta"]) == ("ID-1", "0|MTI=|3")
    assert (query["back_lines"], query["forward_lines"]) == ("1", "0")


class _Projects(BaseHTTPRequestHandler):
    """A server that lists two projects, one a page, to requests without a project."""

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        host = self.headers["Host"] == f"127.0.0.1:{self.server.server_address[1]}"
        name = "ab"[int(query["offset"][0])]
        body = json.dumps({"count": 1, "total": 2, "projects": [{"projectName": name, "region": "r"}]}).encode()
        self.send_response(200 if host else 400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_projects_are_listed_without_naming_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`projects` lists all pages without a project, at the endpoint's own host."""
    monkeypatch.delenv("LOGHUB_PROJECT")
    with HTTPServer(("127.0.0.1", 0), _Projects) as listing:
        serving = threading.Thread(target=listing.serve_forever, args=(0.02,))
        serving.start()
        monkeypatch.setenv("LOGHUB_ENDPOINT", f"http://127.0.0.1:{listing.server_port}")
        try:
            assert run("projects", "-o", "csv") == (0, "projectName,region\na,r\nb,r\n", "")
        finally:
            listing.shutdown()
            serving.join()


def test_projects_and_logstores_are_created_and_listed(run: Run, server: LogHubServer) -> None:
    """Projects and logstores are created and listed; an existing one is an error unless that is allowed."""
    target = ("-p", "made", "-l", "new")
    assert run("create", "project", "made") == (0, "", "project made is created\n")
    assert run("create", "logstore", *target, "--shards", "3", "--ttl", "7", "--index")[0] == 0
    assert server.requests[-1].path == "/logstores/new/index"
    code, _, err = run("create", "logstore", *target)
    assert code == 1
    assert "AlreadyExist" in err
    assert run("create", "logstore", *target, "--if-not-exists") == (0, "", "logstore new exists already\n")
    assert run("create", "logstore", "new", *target[:2], "--if-not-exists")[2] == "logstore new exists already\n"
    assert run("logstores", *target[:2], "-o", "csv")[1] == "logstoreName\nnew\n"
    details = json.loads(run("logstores", *target[:2], "--details")[1])
    assert (details["shardCount"], details["ttl"]) == (3, 7)
    assert details["createTime"].endswith("Z")
    assert run("create", "logstore", *target, "--if-not-exists", "--access-key-id", "nobody")[0] == 1


def test_a_logstore_that_no_log_could_be_sent_to_is_not_created(run: Run, server: LogHubServer) -> None:
    """`create` refuses a logstore's name by the rule of `send`, before any request."""
    server.clear_requests()
    code, _, err = run("create", "logstore", "App.Log", "-p", "made")
    assert (code, len(server.requests)) == (2, 0)
    assert "--logstore must be lower-case letters" in err


def test_send_takes_the_file_of_a_fallback(run: Run, server: LogHubServer, tmp_path: Path) -> None:
    """Undelivered logs in a file are sent again with time, topic, source, tags and fields, and nothing else."""
    path = tmp_path / "undelivered.jsonl"
    wrong = ProjectConfig("cli", **server.connection | {"access_key_secret": "wrong"})
    with Producer(wrong, config=ProducerConfig(retries=0), fallback=path) as producer:
        stream = producer.stream("cli", os.environ["LOGHUB_LOGSTORE"], topic="t", source="s", tags={"env": "x"})
        stream.send(LogItem({"n": 1}, 1_700_000_000, 7))
    assert run("send", "--format", "json", stdin=path.read_text())[0] == 0
    [log] = server.logs("cli", os.environ["LOGHUB_LOGSTORE"])
    assert (log.time, log.time_ns, log.contents) == (1_700_000_000, 7, [("n", "1")])
    assert (log.topic, log.source, log.tags["env"]) == ("t", "s", "x")


def test_check_says_whether_logs_would_arrive(run: Run, server: LogHubServer) -> None:
    """`check` prints a sentence and an exit code for a valid and an invalid target."""
    code, out, _ = run("check")
    assert code == 0
    assert "accepts the access key" in out
    code, out, err = run("check", "--access-key-id", "nobody")
    assert (code, out) == (1, "")
    assert err.startswith("producer check: ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["search", "--from", "yesterday"], "--from must be now, a time ago such as -15m"),
        (["search", "--from", "1700000000000"], "are these milliseconds?"),
        (["search", "--from", "now", "--to", "-1h"], "--from now must be before --to -1h"),
        (["search", "--from", "1700000000", "--to", "1700000000"], "must be before --to 1700000000"),
        (["search", "--from", "-1x"], "--from must be now, a time ago such as -15m"),
        (["search", "-l", ""], "--logstore is empty: leave it out, or give a value"),
        (["tail", "--grep", "("], "--grep (: "),
        (["send", "x", "-l", "Bad Name!"], "Bad Name!"),
        (["create", "project", "a", "-p", "b"], "two names for one project: a and --project b"),
    ],
)
def test_a_wrong_argument_is_reported_with_its_flag_rule_and_value_and_exits_with_2(
    run: Run, arguments: list[str], told: str
) -> None:
    """A wrong argument is reported with its flag, rule and value, and exits with 2."""
    code, _, err = run(*arguments)
    assert told in err
    assert code == 2


def test_a_refusal_is_reported_with_operation_target_error_code_request_id_and_advice(
    run: Run, server: LogHubServer
) -> None:
    """A refusal is reported with operation, target, error code, request id and advice, and exits with 1."""
    server.faults.add(answer(404, "LogStoreNotExist", "no such store"))
    code, _, err = run("search")
    assert code == 1
    assert err.startswith("producer search: GetLogs of cli at http://127.0.0.1:")
    assert "LogStoreNotExist: no such store (request id " in err
    assert err.endswith("; check --logstore\n")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("ParameterInvalid", "ParameterInvalid: it ends too early (request id "),
        ("LogStoreAlreadyExist", "; --if-not-exists accepts that\n"),
    ],
)
def test_a_refusal_that_says_it_all_gets_no_advice(run: Run, server: LogHubServer, code: str, told: str) -> None:
    """A refusal whose message is complete gets no general advice."""
    server.faults.add(answer(400, code, "it ends too early"))
    _, _, err = run("search")
    assert told in err
    assert "permissions" not in err


def test_a_search_without_results_prints_a_message_on_the_standard_error(run: Run, server: LogHubServer) -> None:
    """A search without results prints a message on the standard error, leaves the output alone, and exits with 0."""
    assert run("create", "logstore")[0] == 0
    assert run("search", "nothing", "--output", "json") == (0, "[]\n", "no log of that range matches\n")


def test_times_are_relative_or_absolute() -> None:
    """Times are times ago in each unit, seconds, or ISO 8601 with a zone."""
    now = 1_700_000_000.5
    found = [time_of(text, now) for text in ("now", "-30s", "-15m", "2h", "-7d", "-1w", "1600000000")]
    assert [int(now) - each for each in found[:6]] == [0, 30, 900, 7200, 604_800, 604_800]
    assert found[6] == 1_600_000_000
    assert time_of("2023-11-14T22:13:20Z", now) == time_of("2023-11-15T00:13:20+02:00", now) == 1_700_000_000


def put_what_is_to_be_copied(server: LogHubServer, now: int) -> None:
    """Send logs with several topics, sources, tags and times, and one with reserved names as fields."""
    with Producer(ProjectConfig("cli", **server.connection)) as producer:
        for number, topic in enumerate(("", "web", "größe")):
            tags = {"pod": f"p-{number}", "zone": "é"}
            stream = producer.stream("cli", os.environ["LOGHUB_LOGSTORE"], topic=topic, source=f"s{number}", tags=tags)
            stream.send(LogItem({"n": number, "text": 'a "b"\n\u2028日本'}, time=now, time_ns=number * 111))
            stream.send(LogItem({"n": number, "__topic__": "forged"}, time=now + 1))
    forged = log_group("x", time=now + 2, topic="true", tags={"env": "true"})
    group = LogGroup.FromString(forged)
    group.Logs[0].Contents.add(Key="__time__", Value=b"5")
    group.Logs[0].Contents.add(Key="__tag__:env", Value=b"forged")
    with Client(server, project="cli") as client:
        client.put(group.SerializeToString(), logstore=os.environ["LOGHUB_LOGSTORE"])


def whole(server: LogHubServer, logstore: str) -> list[tuple[object, ...]]:
    """Return everything of every log, except the values that each request makes."""

    def parts(log: StoredLog) -> tuple[object, ...]:
        tags = {name: text for name, text in log.tags.items() if name != "__pack_id__"}
        contents = [(free_name(name), text) for name, text in log.contents]
        return log.time, log.time_ns, log.topic, log.source, tags, contents

    return sorted(map(parts, server.logs("cli", logstore)), key=repr)


@pytest.mark.parametrize("form", ["json", "jsonl"])
@pytest.mark.parametrize("command", ["pull", "search", "tail"])
def test_logs_that_one_command_prints_are_sent_again_with_time_topic_source_tags_and_fields_kept(
    run: Run, server: LogHubServer, command: str, form: str
) -> None:
    """Logs that one command prints are sent again with time, topic, source, tags and fields kept."""
    logstore, now = os.environ["LOGHUB_LOGSTORE"], int(time.time()) - 60
    put_what_is_to_be_copied(server, now)
    code, printed, _ = run(command, "--output", form)
    assert code == 0
    assert run("send", "--format", "json", "--logstore", f"{logstore}-copy", stdin=printed)[0] == 0
    assert len(whole(server, logstore)) == 7
    assert whole(server, f"{logstore}-copy") == whole(server, logstore)
    (forged,) = (line for line in printed.splitlines() if "___tag__:env" in line)
    shown = json.loads(forged.removesuffix(","))
    assert (shown["__time__"], shown["__tag__:env"], shown["__topic__"]) == (str(now + 2), "true", "true")


def test_topic_and_source_override_those_of_all_logs_an_invalid_time_is_reported_with_its_line(
    run: Run, server: LogHubServer
) -> None:
    """``--topic`` and ``--source`` override those of all logs; an invalid time is reported with its line."""
    text = '{"__topic__": "t", "__source__": "s", "a": "1"}\n{"__time__": "now", "b": "1"}\n{"__tag__:x": 1}\n'
    code, _, told = run("send", "--format", "json", "--topic", "mine", "--source", "here", stdin=text)
    assert code == 1
    assert "line 2: __time__ is 'now': it must be a whole number" in told
    assert "line 3: __tag__:x must be text" in told
    (log,) = server.logs("cli", os.environ["LOGHUB_LOGSTORE"])
    assert (log.topic, log.source, log.contents) == ("mine", "here", [("a", "1")])
