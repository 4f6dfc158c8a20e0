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
from .search import Wanted, in_time, see_logs, time_to_search
from .sql_rows import SqlRows
from .sql_text import DEFAULT_ROWS, SqlText, folded, read_sql

T = TypeVar("T")

#: How often it is looked whether the client of a statement that runs is still there.
_LOOK_SECONDS = 0.1
#: What a process may take to start, on a machine that has much else to do; an idle one needs a tenth of a second.
_START_SECONDS = 60
_TYPES = {"long": "BIGINT", "double": "DOUBLE"}


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """What a statement found, and what it took.

    :ivar result: its columns and rows.
    :ivar processed: how many logs it was run over.
    :ivar seconds: how long that took, the search included.
    """

    result: SqlResult
    processed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a statement: its names, whose logs it has, and which of these."""

    names: list[str]
    call: Call
    wanted: Wanted


async def run_sql(service: Service, call: Call, wanted: Wanted, text: str) -> SqlAnswer:
    """Run the SQL in ``text`` over the logs that are wanted; their order and page mean nothing.

    :raises ApiError: ``ParameterInvalid``, it cannot be run or takes too much; as a search.
    """
    check_length(text, service.limits)
    name = call.place.logstore
    names = ["log"] if name.lower() == "log" else ["log", name]
    return await run_over(service, read_sql(text), [Table(names, call, wanted)])


def check_length(text: str, limits: Limits) -> None:
    """Refuse SQL, or SPL, that is too long.

    :raises ApiError: ``ParameterInvalid``.
    """
    if len(text) > limits.query_chars:
        raise ApiError(
            "ParameterInvalid", f"behind '|' stand {counted(len(text), 'character')}, {limits.query_chars} are allowed"
        )


async def run_over(service: Service, sql: SqlText, tables: list[Table]) -> SqlAnswer:
    """Run a statement over tables.

    :raises ApiError: as :func:`run_sql`.
    """
    begun = time.monotonic()
    types = [(table.names, await _index_types(service, table.call)) for table in tables]
    call = tables[0].call
    async with sql_process(service, call, _statement(sql, service.limits, types)) as process:
        rows = SqlRows(sql, service.limits, process.take_rows)
        for table in tables:
            await see_logs(service, table.call, table.wanted, rows.add)
            await service.search(rows.end_table)
        result = await while_wanted(call, service.search(process.run, service.limits.page_bytes))
        return SqlAnswer(result, rows.count, time.monotonic() - begun)


async def while_wanted(call: Call, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns, as long as somebody waits for the answer.

    :raises ClientGoneError: nobody does; ``work`` is cancelled.
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
    """A process that has taken ``statement``, see ``Statement`` of ``sql_engine``; to be given its rows, and run.

    Inside the block there is room for a search, and time: what a process takes to start is none of the statement's.

    :raises ApiError: as :func:`.search.searching`; :func:`.search.in_time`, for the start as well.
    :raises ClientGoneError: nobody waits for the answer any more, since before the process had started.
    """
    async with service.searches.taken(1):
        process = await while_wanted(call, _begun(service, statement))
        try:
            async with time_to_search(service):
                yield process
        except BaseException:
            # It may run on, and whoever waits for it in a thread is told only by its end.
            if not process.is_fit:
                process.kill()
            raise
        finally:
            # Behind whatever still runs in there.
            service.searchers.submit(service.sql.give_back, process)


async def _begun(service: Service, statement: dict[str, Any], *, is_new: bool = False) -> SqlProcess:
    process = await _process(service, is_new=is_new)
    try:
        async with in_time(_START_SECONDS, f"no process for SQL had started within {_START_SECONDS} s"):
            await service.search(process.begin, statement)
    except BaseException as error:
        process.kill()
        service.searchers.submit(service.sql.give_back, process)
        if is_new or not isinstance(error, NotTakenError):
            raise
    else:
        return process
    # Somebody has killed it since it was looked at: nobody has had the time to do so with a new one.
    return await _begun(service, statement, is_new=True)


async def _process(service: Service, *, is_new: bool) -> SqlProcess:
    """A process for one statement; who no longer waits for it when it has started leaves it to others."""
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
    """As the program takes it: see ``Statement`` of ``sql_engine``."""
    return {
        "text": sql.text,
        "most_rows": limits.sql_result_rows if sql.has_limit else DEFAULT_ROWS,
        "cuts": not sql.has_limit,
        "names": sorted(sql.words - {"log", "__time__", ""}),
        "tables": tables,
        "result_bytes": limits.page_bytes,
        "seconds": limits.search_seconds,
    }


async def _index_types(service: Service, call: Call) -> dict[str, str]:
    """The type of each field of which an index says that it is a number."""
    try:
        content, _ = await service.stored(service.store.indexes.get(call.place))
    except ApiError as error:
        if error.code != "IndexConfigNotExist":
            raise
        return {}
    keys = content.get("keys")
    pairs = keys.items() if isinstance(keys, dict) else ()
    kinds = {folded(name): str(key.get("type")) for name, key in pairs if isinstance(key, dict)}
    return {name: _TYPES[kind] for name, kind in kinds.items() if kind in _TYPES}
