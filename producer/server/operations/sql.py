"""GetLogs with SQL: ``query | SELECT …`` over the logs that match the query."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from ...text.plural import counted
from ..errors import ApiError, ClientGoneError
from ..limits import Limits
from ..service import Call, Service
from ..sql_process import NotTakenError, SqlProcess, SqlResult
from ..store import indexes
from .search import Wanted, in_time, see_logs, time_to_search
from .sql_rows import SqlRows
from .sql_text import SqlText, folded, read_sql

T = TypeVar("T")

#: Rows of a statement without LIMIT, as in the service.
DEFAULT_ROWS = 100
#: Seconds between checks that the client of a running statement is still connected.
_LOOK_SECONDS = 0.1
#: Maximum seconds for a process to start on a busy machine; an idle one needs a tenth of a second.
_START_SECONDS = 60
_TYPES = {"long": "BIGINT", "double": "DOUBLE"}


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """The result of a statement, and its cost.

    :ivar result: columns and rows.
    :ivar processed: number of logs read.
    :ivar seconds: duration, the search included.
    """

    result: SqlResult
    processed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a statement: its names, the request whose logstore it shows, and the search for its logs."""

    names: list[str]
    call: Call
    wanted: Wanted


async def run_sql(service: Service, call: Call, wanted: Wanted, text: str) -> SqlAnswer:
    """Run the SQL in ``text`` over the logs of a search; the search's order and page are ignored.

    :raises ApiError: ``ParameterInvalid``, the SQL fails or takes too much; or the search fails.
    """
    check_length(text, service.limits)
    name = call.place.logstore
    names = ["log"] if name.lower() == "log" else ["log", name]
    return await run_over(service, read_sql(text), [Table(names, call, wanted)])


def check_length(text: str, limits: Limits) -> None:
    """Refuse SQL or SPL that is too long.

    :raises ApiError: ``ParameterInvalid``.
    """
    if len(text) > limits.query_chars:
        raise ApiError(
            "ParameterInvalid",
            f"the text after '|' has {counted(len(text), 'character')}: at most {limits.query_chars} are allowed",
        )


async def run_over(service: Service, sql: SqlText, tables: list[Table]) -> SqlAnswer:
    """Run a statement over tables.

    :raises ApiError: ``ParameterInvalid``, the SQL fails or takes too much; or the search fails.
    """
    begun = time.monotonic()
    types = [(table.names, await _index_types(service, table.call)) for table in tables]
    call = tables[0].call
    async with sql_process(service, call, _statement(sql, service.limits, types)) as process:
        rows = SqlRows(sql, service.limits, process.take_rows)
        for table in tables:
            await see_logs(service, table.call, table.wanted, rows.add)
            await service.search(rows.end_table)
        result = await while_connected(call, service.search(process.run, service.limits.page_bytes))
        return SqlAnswer(result, rows.count, time.monotonic() - begun)


async def while_connected(call: Call, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, or cancel it when the client disconnects.

    :raises ClientGoneError: the client has disconnected.
    """
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=_LOOK_SECONDS))[0]:
            if call.is_gone():
                raise ClientGoneError
        return task.result()
    finally:
        task.cancel()


@asynccontextmanager
async def sql_process(service: Service, call: Call, statement: dict[str, Any]) -> AsyncIterator[SqlProcess]:
    """Yield a process that has taken ``statement`` (``Statement`` of ``sql_engine``), to get its rows and run.

    The block holds a place for a search, and its time is bounded. The process's own start does not count.

    :raises ApiError: ``ServerBusy``, there are too many searches; ``RequestTimeout``, the start or the block took too
        long.
    :raises ClientGoneError: the client has disconnected before the process had started.
    """
    async with service.searches.taken(1):
        process = await while_connected(call, _begun(service, statement))
        try:
            async with time_to_search(service):
                yield process
        except BaseException:
            # The statement may still run, and only the end of its process frees the thread that waits for it.
            if not process.is_fit:
                process.kill()
            raise
        finally:
            # Queued after the work of this process that still runs in these threads.
            service.searchers.submit(service.sql.give_back, process)


async def _begun(service: Service, statement: dict[str, Any], *, is_new: bool = False) -> SqlProcess:
    process = await _process(service, is_new=is_new)
    try:
        async with in_time(_START_SECONDS, f"no process for SQL started within {_START_SECONDS} s: try again"):
            await service.search(process.begin, statement)
    except BaseException as error:
        process.kill()
        service.searchers.submit(service.sql.give_back, process)
        if is_new or not isinstance(error, NotTakenError):
            raise
    else:
        return process
    # The process was killed after the check that it is fit. A new process is not shared, so nothing kills it.
    return await _begun(service, statement, is_new=True)


async def _process(service: Service, *, is_new: bool) -> SqlProcess:
    """Return a process for one statement. If the caller is cancelled meanwhile, the process is left to others."""
    taking = service.searchers.submit(service.sql.take, is_new)
    try:
        return await asyncio.wrap_future(taking)
    except asyncio.CancelledError:
        taking.add_done_callback(lambda taken: _return(service, taken))
        raise


def _return(service: Service, taken: Future[SqlProcess]) -> None:
    if not taken.cancelled() and taken.exception() is None:
        service.sql.give_back(taken.result())


def _statement(sql: SqlText, limits: Limits, tables: list[tuple[list[str], dict[str, str]]]) -> dict[str, Any]:
    """Return the statement in the form of ``Statement`` of ``sql_engine``."""
    return {
        "text": sql.text,
        "most_rows": limits.sql_result_rows,
        "default_rows": min(DEFAULT_ROWS, limits.sql_result_rows),
        "names": sorted(sql.words - {"log", "__time__", ""}),
        "tables": tables,
        "result_bytes": limits.page_bytes,
        "seconds": limits.search_seconds,
    }


async def _index_types(service: Service, call: Call) -> dict[str, str]:
    """Return the SQL type of each field that an index declares as a number."""
    try:
        content, _ = await service.stored(indexes.get, call.place)
    except ApiError as error:
        if error.code != "IndexConfigNotExist":
            raise
        return {}
    keys = content.get("keys")
    pairs = keys.items() if isinstance(keys, dict) else ()
    kinds = {folded(name): str(key.get("type")) for name, key in pairs if isinstance(key, dict)}
    return {name: _TYPES[kind] for name, kind in kinds.items() if kind in _TYPES}
