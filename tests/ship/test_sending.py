"""Records have tags of their origin, and a refused line does not affect its neighbours."""

import gzip
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from producer.server import LogHubServer
from producer.server.faults import ApiRequest, Refuse
from producer.ship.files.find import Search
from producer.ship.files.plan import plan
from producer.ship.job import ShipJob
from producer.ship.line_times import LineTimes
from producer.spark.errors import DeliveryFailedError

from .conftest import LOGSTORE, PROJECT, contents, held, ship_splits

MakeJob = Callable[..., ShipJob]


def ship_file(path: Path, job: ShipJob) -> None:
    ship_splits(plan(Search([str(path)]).all().files)[0], job)


@pytest.mark.parametrize("parser", ["text", "auto"])
def test_path_and_host_are_tags_of_the_batch_the_line_and_its_parsed_fields_are_fields(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, parser: str
) -> None:
    """Path and host are tags of the batch; the line and its parsed fields are fields."""
    file = tmp_path / "a.log"
    file.write_text("one\n")
    ship_file(file, make_job(parser=parser, file_offset=False))
    (log,) = server.logs(PROJECT, LOGSTORE)
    assert dict(log.contents) == {"content": "one"}
    assert log.tags.items() >= {"__path__": str(file), "__hostname__": socket.gethostname()}.items()
    assert "__inode__" not in log.tags


@pytest.mark.parametrize("parser", ["text", "auto"])
def test_on_request_the_offset_is_a_field_and_the_inode_a_tag(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, parser: str
) -> None:
    """On request the offset is a field, and the inode a tag."""
    file = tmp_path / "a.log"
    file.write_text("one\ntwo\n")
    ship_file(file, make_job(parser=parser, file_offset=True))
    logs = server.logs(PROJECT, LOGSTORE)
    assert [dict(log.contents)["__file_offset__"] for log in logs] == ["0", "4"]
    assert {log.tags["__inode__"] for log in logs} == {str(file.stat().st_ino)}


def test_files_do_not_share_a_batch(tmp_path: Path, server: LogHubServer, make_job: MakeJob) -> None:
    """Lines of two files in one task have different tags, so they do not share a batch."""
    (tmp_path / "a.log").write_text("one\n")
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(b"two\n"))
    ship_file(tmp_path, make_job(parser="text", file_offset=False))
    found = {log.tags["__path__"]: dict(log.contents)["content"] for log in server.logs(PROJECT, LOGSTORE)}
    assert found == {f"{tmp_path}/a.log": "one", f"{tmp_path}/b.log.gz": "two"}


@pytest.mark.parametrize("parser", ["text", "auto"])
def test_neighbours_of_a_refused_line_arrive(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, parser: str
) -> None:
    """If one line in a thousand is refused, the others are delivered, and the failure has its file and offset."""
    file = tmp_path / "a.log"
    bad = "bad" * 100_000
    lines = [f"line {number}" if number != 777 else bad for number in range(1000)]
    file.write_text("\n".join(lines))  # The last line, without an end, is a block of its own.

    def refuse_bad_line(request: ApiRequest) -> Refuse | None:
        # Any request of this size contains the refused line.
        holds = int(request.headers["x-log-bodyrawsize"]) > len(bad)
        return Refuse(status=400, code="PostBodyInvalid", message="no good") if holds else None

    server.faults.add(refuse_bad_line, operation="PutLogs")
    offset = file.read_bytes().index(b"bad")
    with pytest.raises(DeliveryFailedError, match=f"a line of {file} from byte {offset} on: PostBodyInvalid: no good"):
        ship_file(file, make_job(parser=parser, file_offset=True))
    assert contents(server) == [line for line in lines if line != bad]


def test_a_server_that_refuses_everything_ends_the_attempt_after_a_few_lines(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """A server that refuses everything ends the attempt after a few lines."""
    file = tmp_path / "a.log"
    file.write_text("x\n" * 4096)
    asked = []

    def refuse(request: ApiRequest) -> Refuse:
        asked.append(request)
        return Refuse(status=400, code="PostBodyInvalid", message="no good")

    server.faults.add(refuse, operation="PutLogs")
    with pytest.raises(DeliveryFailedError, match=r"\(and 4 more\)"):
        ship_file(file, make_job(parser="text"))
    assert len(asked) < 50


@pytest.mark.parametrize(
    ("parser", "form"),
    [("json", '{{"time":"{}"}}'), ("syslog", "{} box su: x"), ("logfmt", "ts={} a=1"), ("delimited", "{},1")],
)
@pytest.mark.parametrize("broken", [b"", b"\xff"], ids=["as columns", "record by record"])
def test_on_request_a_record_has_the_time_of_its_line_a_line_without_one_has_the_time_of_sending(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, broken: bytes, parser: str, form: str
) -> None:
    """On request, a record has the time of its line; a line without one has the time of sending."""
    file = tmp_path / "a.log"
    told = int(time.time()) - 3600
    moment = datetime.fromtimestamp(told, UTC).isoformat()
    file.write_bytes(f"{form.format(moment)}\nnone".encode() + broken + b"\n")
    began = int(time.time())
    ship_file(file, make_job(parser=parser, columns=("time", "n"), line_time=LineTimes()))
    first, second = server.logs(PROJECT, LOGSTORE)
    assert first.time == told
    assert second.time >= began
    ship_file(file, make_job(parser=parser, columns=("time", "n")))
    assert all(log.time >= began for log in server.logs(PROJECT, LOGSTORE)[-2:])


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_header_of_a_file_names_its_columns_in_each_range(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, packed: bool
) -> None:
    """The header of a file names the columns in each range, and is not sent as a record."""
    rows = "".join(f'{number};"v;{number}"\r\n' for number in range(300))
    data = f"\ufeffnumber;content\r\n{rows}odd\r\n".encode()
    file = tmp_path / "a.csv"
    file.write_bytes(gzip.compress(data) if packed else data)
    (tmp_path / "b.csv").write_text("other\nx")
    job = make_job(parser="delimited", delimiter=";")
    figures = [ship_splits(splits, job) for splits in plan(Search([str(tmp_path)]).all().files, partition_bytes=500)]
    assert len(figures) > (1 if packed else 4)
    assert sum(each.unparsed for each in figures) == 1
    first = [log for log in held(server) if log["__tag__:__path__"] == str(file)]
    assert [(log["number"], log["content_"]) for log in first[:-1]] == [(str(n), f"v;{n}") for n in range(300)]
    assert first[-1]["content"] == "odd"
    assert [log["other"] for log in held(server)[len(first) :]] == ["x"]


def test_a_file_whose_header_names_no_columns_is_shipped_as_text_with_its_first_line(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """A file whose header names no columns is shipped as text, with its first line."""
    file = tmp_path / "a.csv"
    file.write_text('a,"b\n1,2\n')
    figures = ship_splits(plan(Search([str(file)]).all().files)[0], make_job(parser="delimited"))
    assert contents(server) == ['a,"b', "1,2"]
    assert figures.unparsed == 2
