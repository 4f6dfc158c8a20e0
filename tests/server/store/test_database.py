import sqlite3
import threading
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest

from producer.server.errors import ApiError
from producer.server.store.database import Database


def prepare(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS rows (value INTEGER PRIMARY KEY)")


def insert(value: int):  # type: ignore[no-untyped-def]
    return lambda connection: connection.execute("INSERT INTO rows VALUES (?)", (value,)) and value


def values(database: Database) -> list[int]:
    query = "SELECT value FROM rows ORDER BY value"
    return database.submit(lambda connection: [value for (value,) in connection.execute(query)]).result()


def test_jobs_that_wait_together_share_one_commit(tmp_path: Path) -> None:
    """Twenty writers that wait for a busy database share one commit."""
    database = Database(tmp_path / "db", prepare)
    commits: list[str] = []
    database.submit(
        lambda connection: connection.set_trace_callback(
            lambda text: commits.append(text) if text == "COMMIT" else None
        )
    ).result()
    busy, go_on = threading.Event(), threading.Event()
    first = database.submit(lambda _connection: (busy.set(), go_on.wait(60)))
    busy.wait(60)
    writes = [database.submit(insert(value)) for value in range(20)]
    commits.clear()
    go_on.set()
    wait([first, *writes])
    assert len(commits) == 2
    assert list(range(20)) == values(database)
    database.close()


def test_a_future_also_a_readers_is_open_until_its_transaction_has_committed() -> None:
    """A future, also a reader's, is open until its transaction has committed."""
    database = Database(None, prepare)
    open_futures: list[bool] = []
    busy, go_on = threading.Event(), threading.Event()
    database.submit(lambda _connection: (busy.set(), go_on.wait(60)))
    busy.wait(60)
    write = database.submit(insert(1))
    last = database.submit(lambda _connection: open_futures.append(write.done()))
    go_on.set()
    last.result(60)
    assert open_futures == [False]
    assert write.result(60) == 1
    database.close()


def test_a_refusal_harms_no_other_job() -> None:
    """A job that fails before its first write leaves the other jobs of its transaction intact."""
    database = Database(None, prepare)

    def refuse(_connection: sqlite3.Connection) -> None:
        raise ApiError("ProjectNotExist", "no")

    refused, written = database.submit(refuse), database.submit(insert(1))
    with pytest.raises(ApiError):
        refused.result(60)
    assert written.result(60) == 1
    assert values(database) == [1]
    database.close()


def run_together(database: Database, *jobs: Any) -> list[Future[Any]]:
    """Return the futures of jobs that ran in one transaction, because they waited for a busy database."""
    busy, go_on = threading.Event(), threading.Event()
    database.submit(lambda _connection: (busy.set(), go_on.wait(60)))
    busy.wait(60)
    futures = [database.submit(job) for job in jobs]
    go_on.set()
    wait(futures, 10)
    return futures


def test_a_job_that_raises_harms_no_other_job() -> None:
    """A job that fails after writing is undone alone; the other jobs of its transaction stay."""
    database = Database(None, prepare)

    def write_and_fail(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO rows VALUES (7)")
        connection.execute("SELECT ?", ("\ud800",))

    first, failed, last = run_together(database, insert(1), write_and_fail, insert(2))
    with pytest.raises(UnicodeEncodeError):
        failed.result(60)
    assert (first.result(60), last.result(60)) == (1, 2)
    assert values(database) == [1, 2]
    database.close()


def test_a_refused_commit_fails_and_undoes_every_job_in_its_transaction() -> None:
    """A refused commit fails and undoes every job in its transaction, and the next transaction works."""
    database = Database(None, prepare)
    marks = "CREATE TABLE marks (value REFERENCES rows DEFERRABLE INITIALLY DEFERRED)"
    database.submit(lambda connection: connection.execute(marks)).result()
    together = run_together(
        database, insert(1), lambda connection: connection.execute("INSERT INTO marks VALUES (99)"), insert(2)
    )
    for future in together:
        with pytest.raises(sqlite3.IntegrityError):
            future.result(60)
    database.submit(insert(3)).result(60)
    assert values(database) == [3]
    database.close()


def test_where_sqlite_itself_rolled_back_every_job_of_the_transaction_fails() -> None:
    """Where SQLite itself rolled back, every job of the transaction fails."""
    database = Database(None, prepare)
    together = run_together(
        database, insert(1), lambda connection: connection.execute("INSERT OR ROLLBACK INTO rows VALUES (1)"), insert(2)
    )
    for future in together:
        with pytest.raises(sqlite3.IntegrityError):
            future.result(60)
    assert values(database) == []
    database.close()


def test_jobs_submitted_before_close_are_committed_by_it_jobs_after_it_are_refused(tmp_path: Path) -> None:
    """Jobs submitted before close() are committed by it; jobs after it are refused."""
    database = Database(tmp_path / "db", prepare)
    writes = [database.submit(insert(value)) for value in range(200)]
    database.close()
    database.close()
    assert all(write.done() for write in writes)
    with pytest.raises(RuntimeError, match="closed"):
        database.submit(insert(1))
    again = Database(tmp_path / "db", prepare)
    assert list(range(200)) == values(again)
    again.close()
