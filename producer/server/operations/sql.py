"""GetLogs with SQL: ``query | SELECT …`` over the logs that match the query."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

from ..errors import ApiError
from ..service import Call, Service
from .search import Wanted, searching, see_logs
from .sql_engine import SqlEngine, SqlResult
from .sql_text import read_sql


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
        engine = await service.search(SqlEngine, sql, service.limits, types, call.place.logstore)
        try:
            await see_logs(service, call, wanted, engine.add)
            result = await _interruptible(service, engine)
            _check_size(result, service.limits.page_bytes)
            return SqlAnswer(result, engine.rows, time.monotonic() - begun)
        finally:
            # Behind whatever still runs in there: a thread that was given up ends by the interruption.
            service.searchers.submit(engine.close)


async def _interruptible(service: Service, engine: SqlEngine) -> SqlResult:
    try:
        return await service.search(engine.run)
    except asyncio.CancelledError:
        engine.interrupt()
        raise


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


def _check_size(result: SqlResult, most: int) -> None:
    if sum(len(json.dumps(row)) for row in result.rows) > most:
        raise ApiError("ParameterInvalid", f"the result has more than {most} bytes: use a smaller LIMIT")
