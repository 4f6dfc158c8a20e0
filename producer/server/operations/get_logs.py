"""GetLogs: logs of a time range that match a keyword query, as JSON.

The search has two forms. ``GET /logstores/{logstore}?type=log&…`` answers a list, with the progress in headers. ``POST
/logstores/{logstore}/logs`` takes the parameters as JSON, as current SDKs send them, and answers ``{"meta": …, "data":
[…]}``, compressed.

With SQL after the query the answer has its rows instead of logs. In scan mode SPL may follow the query. There is no
index, so a search reads every LogGroup of the range. PullLogs is the way to read everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...wire.compression import compress
from ..errors import ApiError
from ..limits import Limits
from ..messages import Answer, parse_number
from ..service import Call, Service
from ..store.log_groups import StoredLog
from ..store.rows import Search
from .json_body import parse_json
from .pull_logs import accepted_compression
from .query import compile_query
from .query_tokens import split_query
from .rendering import log_fields, pack_meta
from .scan import Scanned, scan, wants_scan
from .search import Wanted, find_page, load_logs, searching
from .spl import names_kept, steps_of
from .spl_text import read_spl
from .sql import SqlAnswer, check_length, run_sql
from .sql_text import first_word, tokens_of

_SQL_HEADERS = {
    "x-log-elapsed-millisecond": "elapsedMillisecond",
    "x-log-where-query": "whereQuery",
    "x-log-agg-query": "aggQuery",
    "x-log-cpu-sec": "cpuSec",
    "x-log-cpu-cores": "cpuCores",
}


@dataclass(frozen=True, slots=True)
class _Found:
    """Logs or rows, each as JSON, and facts about the search under their names in ``meta``."""

    logs: list[str]
    facts: dict[str, Any]


async def get_logs(service: Service, call: Call) -> Answer:
    """Search: ``GET …?type=log&from=…&to=…[&query=…&topic=…&line=…&offset=…&reverse=…]``."""
    return await _search(service, call, call.request.query, _as_list)


async def get_logs_by_json(service: Service, call: Call) -> Answer:
    """Search: ``POST /logstores/{logstore}/logs`` with the same parameters as a JSON object."""
    compression = accepted_compression(call.request)
    return await _search(service, call, parse_json(call.body), lambda logs: _as_object(logs, compression))


def parse_wanted(params: Mapping[str, Any], limits: Limits, keywords: str | None = None) -> Wanted:
    """Parse the parameters of a search; unknown ones are ignored.

    :param keywords: the keyword query to use instead of ``query``; None for ``query``.
    :raises ApiError: ``ParameterInvalid``.
    """
    for name in ("from", "to"):
        if name not in params:
            raise ApiError("ParameterInvalid", f"{name} is missing: a search needs from and to, Unix seconds")
    return Wanted(
        search=Search(
            begin=_number(params, "from", 0), end=_number(params, "to", 0), topic=_text(params, "topic") or None
        ),
        matches=compile_query(_text(params, "query") if keywords is None else keywords, limits),
        offset=_number(params, "offset", 0),
        line=_number(params, "line", limits.page_logs, limits.page_logs),
        reverse=str(params.get("reverse", "")).lower() == "true",
    )


def _number(params: Mapping[str, Any], name: str, default: int, high: int = (1 << 63) - 1) -> int:
    return parse_number(name, str(params.get(name, default)), 0, high)


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name) or ""
    if not isinstance(value, str):
        raise ApiError("ParameterInvalid", f"{name} is {str(value)[:64]!r}: it must be text")
    return value


async def _search(
    service: Service, call: Call, params: Mapping[str, Any], answer: Callable[[_Found], Answer]
) -> Answer:
    """Search when the budget of searches permits, and hold the answer's memory before the next search begins."""
    keywords, command = split_query(_text(params, "query"))
    if command is not None and wants_scan(params):
        check_length(command, service.limits)
        if first_word(tokens_of(command)) not in ("select", "with", "with_pack_meta"):
            return await _scan(service, call, (params, keywords, command), answer)
    if command is not None and command.lower() != "with_pack_meta":
        return await _search_by_sql(service, call, (params, keywords, command), answer)
    render = _as_json if command is None else _as_json_with_meta
    wanted = parse_wanted(params, service.limits, keywords)
    async with searching(service):
        places = await find_page(service, call, wanted)
        logs = await load_logs(service, call, places, render)
        found = await service.search(answer, _Found(logs, _facts(len(logs), len(logs))))
        await call.lease.resize(len(found.body))
    return found


async def _search_by_sql(
    service: Service, call: Call, parsed: tuple[Mapping[str, Any], str, str], answer: Callable[[_Found], Answer]
) -> Answer:
    params, keywords, text = parsed
    # The statement itself selects and orders its rows.
    unpaged = {name: value for name, value in params.items() if name not in ("line", "offset", "reverse")}
    done = await run_sql(service, call, parse_wanted(unpaged, service.limits, keywords), text)
    return answer(_of_sql(done, keywords.strip(), text))


async def _scan(
    service: Service, call: Call, parsed: tuple[Mapping[str, Any], str, str], answer: Callable[[_Found], Answer]
) -> Answer:
    params, keywords, text = parsed
    pipeline, wanted = read_spl(f"* | {text}"), parse_wanted(params, service.limits, keywords)
    is_forward = str(params.get("forward", True)).lower() != "false"
    scanned = await scan(service, call, wanted, pipeline, forward=is_forward)
    render = _renderer(names_kept(steps_of(pipeline)))
    found = await service.search(lambda: answer(_of_scan(scanned, render)))
    await call.lease.resize(len(found.body))
    return found


def _of_scan(scanned: Scanned, render: Callable[[StoredLog], str]) -> _Found:
    logs = [render(log) for group in scanned.kept for log in group.iter_logs()]
    facts = {
        **_facts(len(logs), scanned.end - scanned.begin),
        "mode": 2,
        "scanBytes": scanned.size,
        "phraseQueryInfo": {"scanAll": scanned.is_all, "beginOffset": scanned.begin, "endOffset": scanned.end},
    }
    return _Found(logs, facts)


def _renderer(kept: set[str] | None) -> Callable[[StoredLog], str]:
    """Return a renderer of logs to JSON, without the topic or source if these are not kept."""
    gone = () if kept is None else {"__topic__", "__source__"} - kept
    return lambda log: json.dumps({name: text for name, text in log_fields(log).items() if name not in gone})


def sql_answer(done: SqlAnswer, keywords: str, text: str) -> Answer:
    """Return a statement's result as a list."""
    return _as_list(_of_sql(done, keywords, text))


def _of_sql(done: SqlAnswer, keywords: str, text: str) -> _Found:
    rows = [json.dumps(row) for row in done.result.rows]
    facts = {
        **_facts(len(rows), done.processed),
        "elapsedMillisecond": int(done.seconds * 1000),
        "hasSQL": True,
        "whereQuery": keywords,
        "aggQuery": text,
        "cpuSec": round(done.seconds, 3),
        "cpuCores": 1,
        "keys": done.result.names,
        "columnTypes": done.result.types,
    }
    return _Found(rows, facts)


def _facts(count: int, processed: int) -> dict[str, Any]:
    return {"progress": "Complete", "count": count, "processedRows": processed, "hasSQL": False, "mode": 0}


def _as_list(found: _Found) -> Answer:
    facts = found.facts
    headers = {
        "Content-Type": "application/json",
        "x-log-progress": "Complete",
        "x-log-count": str(facts["count"]),
        "x-log-processed-rows": str(facts["processedRows"]),
        "x-log-has-sql": "true" if facts["hasSQL"] else "false",
    }
    for header, name in _SQL_HEADERS.items():
        if name in facts:
            headers[header] = _in_header(str(facts[name]))
    if "phraseQueryInfo" in facts:  # all values are text here
        info = {name: json.dumps(value) for name, value in facts["phraseQueryInfo"].items()}
        details = {"mode": facts["mode"], "scanBytes": facts["scanBytes"], "phraseQueryInfo": info}
        headers["x-log-query-info"] = json.dumps(details)
    return Answer(headers=headers, body=f"[{', '.join(found.logs)}]".encode())


def _in_header(text: str) -> str:
    """Return text in the form of a header: one line, as bytes of UTF-8."""
    return " ".join(text.split()).encode().decode("latin-1")


def _as_object(found: _Found, compression: str) -> Answer:
    raw = f'{{"meta": {json.dumps(found.facts)}, "data": [{", ".join(found.logs)}]}}'.encode()
    headers = {"Content-Type": "application/json", "x-log-bodyrawsize": str(len(raw))}
    if compression != "none":
        headers["x-log-compresstype"] = compression
    return Answer(headers=headers, body=compress(raw, compression))


def _as_json(log: StoredLog, _index: int) -> str:
    return json.dumps(log_fields(log))


def _as_json_with_meta(log: StoredLog, index: int) -> str:
    return json.dumps({**log_fields(log), "__pack_meta__": pack_meta(log, index)})
