"""GetProjectLogs: one SELECT over logstores of a project, joined or not.

``GET /logs?query=SELECT …``. The time range is a condition of the statement. If the condition has a simple form, only
that range is read, otherwise all logs.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..errors import ApiError
from ..messages import Answer
from ..service import Call, Service
from ..store.rows import EVERYTHING, Search
from .get_logs import sql_answer
from .query import compile_query
from .search import Wanted
from .sql import Table, check_length, run_over
from .sql_text import read_sql, tables_in, where_of

# Only conditions without a table's name: with one, the condition does not restrict the same logstore under another
# name.
_TIME = re.compile(r"__time__\s*(>=|>|<=|<|=)\s*(\d{1,10})", re.IGNORECASE)
_BETWEEN = re.compile(r"(__time__)\s+between\s+(\d+)\s+and\s+(\d+)", re.IGNORECASE)
#: With one of these words, a condition may hold although a part of it does not.
_DOUBT = re.compile(r"\b(?:or|not|between|case|select)\b", re.IGNORECASE)


async def get_project_logs(service: Service, call: Call) -> Answer:
    """Run a SELECT: ``GET /logs?query=SELECT … FROM logstore …``; the parameter ``powerSql`` is ignored."""
    text = call.request.query.get("query", "").strip()
    check_length(text, service.limits)
    if text[:6].lower() != "select" and text[:4].lower() != "with":
        raise ApiError("ParameterInvalid", "the query of GetProjectLogs must be one SELECT, with conditions in WHERE")
    project = call.request.project
    _, known = await service.stored(service.store.logstore_names, project, "", "", 0, -1)
    text, names = tables_in(text, known)
    if not names:
        message = f"the query names no logstore of project {project} after FROM or JOIN: write its name there"
        raise ApiError("LogStoreNotExist", message)
    search = _times(text) if len(names) == 1 else EVERYTHING
    wanted = Wanted(search=search, matches=compile_query("", service.limits), offset=0, line=0, reverse=False)
    calls = [replace(call, request=replace(call.request, logstore=name)) for name in names]
    done = await run_over(
        service, read_sql(text), [Table([name], one, wanted) for name, one in zip(names, calls, strict=True)]
    )
    return sql_answer(done, "", text)


def _times(text: str) -> Search:
    """Return the time range of a SELECT over one logstore; everything if its condition is not simple."""
    condition = _BETWEEN.sub(r"\1 >= \2 and \1 <= \3", where_of(text))
    begin, end = EVERYTHING.begin, EVERYTHING.end
    if _DOUBT.search(condition):
        return EVERYTHING
    for part in re.split(r"\band\b", condition, flags=re.IGNORECASE):
        match = _TIME.fullmatch(part.strip())
        if match is None:
            continue
        sign, time = match[1], int(match[2])
        if sign in (">", ">=", "="):
            begin = max(begin, time + (sign == ">"))
        if sign in ("<", "<=", "="):
            end = min(end, time + (sign != "<"))
    return Search(begin=begin, end=max(begin, end))
