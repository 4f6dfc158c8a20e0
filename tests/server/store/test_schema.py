"""Data directories of earlier versions; ``versions`` has their contents as SQL."""

import sqlite3
from pathlib import Path

import pytest

from producer.server import LogHubServer, ServerStartError
from producer.server.store.schema import VERSION

from ..client import LOGSTORE, PROJECT, Client, error_of, log_group

VERSIONS = sorted(Path(__file__).with_name("versions").glob("*.sql"))


def test_every_version_has_a_specimen() -> None:
    """There is a directory of each earlier version; version 1 had the tables of version 2."""
    assert {int(path.stem) for path in VERSIONS} == {*range(VERSION)} - {1}


@pytest.mark.parametrize("specimen", VERSIONS, ids=lambda path: f"version {path.stem}")
def test_data_of_an_earlier_version_is_taken_over(tmp_path: Path, specimen: Path) -> None:
    """Logs, cursors, sequence numbers, settings and shards survive an upgrade, and new features work with them."""
    connection = sqlite3.connect(tmp_path / "loghub.sqlite3")
    connection.executescript(specimen.read_text())
    connection.close()
    with LogHubServer(data=tmp_path, shards=1) as server, Client(server) as client:
        assert [log.fields["message"] for log in server.logs(PROJECT, LOGSTORE)] == ["x", "y"]
        route = {"path": "/shards/route", "params": {"key": "0a", "seqid": "5"}}
        assert error_of(client.put(log_group("again"), **route)) == (400, "InvalidSequenceId")
        end = client.cursor(0, "end")
        client.put(log_group("z"))
        assert len(client.pull(0, end)[0]) == 1
        assert client.get("/logstores/odd").json()["ttl"] == 30
        begins = [shard["inclusiveBeginKey"][:2] for shard in client.get("/logstores/three/shards").json()]
        assert begins == ["00", "55", "aa"]
        assert len(client.pull(2, client.cursor(2, "begin", "three"), logstore="three")[0]) == 1
        assert client.post_json(f"/logstores/{LOGSTORE}/index", b"{}").status_code == 200
        assert client.request("DELETE", f"/logstores/{LOGSTORE}").status_code == 200


def test_a_project_of_an_earlier_version_is_found_in_any_case(tmp_path: Path) -> None:
    """Names with capitals become lower case with their logstores; of two that would collide none is lost."""
    connection = sqlite3.connect(tmp_path / "loghub.sqlite3")
    connection.executescript(Path(__file__).with_name("versions").joinpath("2.sql").read_text())
    for number, (project, logstore) in enumerate((("One", "l"), ("Two", "l"), ("two", "l"), ("Two", "m")), 10):
        connection.execute("INSERT OR IGNORE INTO projects VALUES (?, '', 0)", (project,))
        connection.execute("INSERT INTO logstores VALUES (?, ?, ?, 1, '{}', 0, 0)", (number, project, logstore))
        connection.execute("INSERT INTO log_groups VALUES (?, ?, 0, 0, 9e9, 0, 1, '', 0, 0, x'')", (number, number))
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    with LogHubServer(data=tmp_path) as server:
        assert [server.count(*place) for place in (("One", "l"), ("two", "l"), ("TWO", "m"))] == [1, 1, 1]
        query = "SELECT project, name FROM logstores WHERE id >= 10 ORDER BY 1, 2"
        kept = server._service.store._database.submit(lambda connection: connection.execute(query).fetchall()).result()
        assert kept == [("Two", "l"), ("one", "l"), ("two", "l"), ("two", "m")]


def test_data_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    """On data of a later version the server refuses to start, with the remedy."""
    with LogHubServer(data=tmp_path) as server:
        server._service.store._database.submit(lambda c: c.execute("PRAGMA user_version = 77")).result()
    with pytest.raises(ServerStartError, match=r"version 77.*another directory"):
        LogHubServer(data=tmp_path)
