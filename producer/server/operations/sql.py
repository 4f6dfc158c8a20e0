"""GetLogs with SQL: ``query | SELECT …`` over the logs that match the query."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ..errors import ApiError
from ..limits import Limits
from ..service import Call, Service
from ..sql_process import SqlProcess, SqlResult
from .search import Wanted, searching, see_logs
from .sql_rows import SqlRows
from .sql_text import DEFAULT_ROWS, SqlText, read_sql

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


async def run_sql(service: Service, call: Call, wanted: Wanted, text: str) -> SqlAnswer:
    """Run the SQL in ``text`` over the logs that are wanted; their order and page mean nothing.

    :raises ApiError: ``ParameterInvalid``, it cannot be run or takes too much; as a search.
    """
    if len(text) > service.limits.query_chars:
        raise ApiError(
            "ParameterInvalid", f"the SQL has {len(text)} characters, {service.limits.query_chars} are allowed"
        )
    sql, begun = read_sql(text), time.monotonic()
    types = await _index_types(service, call)
    async with searching(service):
        process = await _process(service)
        try:
            rows = SqlRows(sql, service.limits, process.take_rows)
            await service.search(process.begin, _statement(sql, service.limits, types, call.place.logstore))
            await see_logs(service, call, wanted, rows.add)
            await service.search(rows.flush)
            result = await service.search(process.run, service.limits.page_bytes)
            return SqlAnswer(result, rows.count, time.monotonic() - begun)
        except BaseException:
            # It may run on, and whoever waits for it in a thread is told only by its end.
            if not process.is_fit:
                process.kill()
            raise
        finally:
            # Behind whatever still runs in there.
            service.searchers.submit(service.sql.give_back, process)


async def _process(service: Service) -> SqlProcess:
    """A process for one statement; who no longer waits for it when it has started leaves it to others."""
    taking = service.searchers.submit(service.sql.take)
    try:
        return await asyncio.wrap_future(taking)
    except asyncio.CancelledError:
        taking.add_done_callback(lambda taken: _return(service, taken))
        raise


def _return(service: Service, taken: Future[SqlProcess]) -> None:
    if not taken.cancelled() and taken.exception() is None:
        service.sql.give_back(taken.result())


def _statement(sql: SqlText, limits: Limits, types: dict[str, str], table: str) -> dict[str, Any]:
    """As the program takes it: see ``Statement`` of ``sql_engine``."""
    return {
        "text": sql.text,
        "most_rows": limits.sql_result_rows if sql.has_limit else DEFAULT_ROWS,
        "cuts": not sql.has_limit,
        "names": sorted(sql.words - {"log", "__time__", ""}),
        "types": {name.lower(): _TYPES[kind] for name, kind in types.items() if kind in _TYPES},
        "table": table,
        "memory_bytes": limits.sql_bytes,
        "result_bytes": limits.page_bytes,
        "seconds": limits.search_seconds,
    }


async def _index_types(service: Service, call: Call) -> dict[str, str]:
    """What an index says of the type of each field; nothing without one."""
    try:
        content, _ = await service.stored(service.store.indexes.get(call.place))
    except ApiError as error:
        if error.code != "IndexConfigNotExist":
            raise
        return {}
    keys = content.get("keys")
    pairs = keys.items() if isinstance(keys, dict) else ()
    return {name: str(key.get("type")) for name, key in pairs if isinstance(key, dict)}
