"""GetLogs: logs of a time range that match a keyword query, as JSON.

Two forms of the same search: ``GET /logstores/{logstore}?type=log&…`` answers a list, its facts in headers; ``POST
/logstores/{logstore}/logs`` with the parameters as JSON (what current SDKs send) answers ``{"meta": …, "data": […]}``,
compressed. There is no index: every LogGroup of the range is read. To read everything, PullLogs is the way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...wire.compression import compress
from ..errors import ApiError
from ..limits import Limits
from ..messages import Answer, ApiRequest, json_answer, parse_number
from ..service import Service, place_of
from ..store.log_groups import StoredLog
from ..store.rows import PackedGroup, Search
from .pull_logs import accepted_compression
from .query import Matcher, compile_query

_GROUPS_AT_ONCE = 32

# A log that matched, behind what it is sorted by: its time, then the order of arrival.
_Found = tuple[tuple[int, int, int, int], StoredLog]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a reader asks for: a search, which logs of it match, which page of those, and the newest first or last."""

    search: Search
    matches: Matcher
    offset: int
    line: int
    reverse: bool

    def keep(self, found: list[_Found]) -> list[_Found]:
        """Of all found so far, those that the page can still need, sorted."""
        found.sort(key=lambda item: item[0], reverse=self.reverse)
        return found[: self.offset + self.line]


async def get_logs(service: Service, request: ApiRequest, _body: bytes) -> Answer:
    """``GET /logstores/{logstore}?type=log&from=…&to=…[&query=…&topic=…&line=…&offset=…&reverse=…]``."""
    logs = await _find(service, request, parse_wanted(request.query, service.limits))
    answer = json_answer([_as_json(log) for log in logs])
    facts = {
        "x-log-progress": "Complete",
        "x-log-count": str(len(logs)),
        "x-log-processed-rows": str(len(logs)),
        "x-log-has-sql": "false",
    }
    return Answer(headers={**answer.headers, **facts}, body=answer.body)


async def get_logs_by_json(service: Service, request: ApiRequest, body: bytes) -> Answer:
    """``POST /logstores/{logstore}/logs``, the same parameters as a JSON object."""
    logs = await _find(service, request, parse_wanted(parse_json(body), service.limits))
    meta = {"progress": "Complete", "count": len(logs), "processedRows": len(logs), "hasSQL": False, "mode": 0}
    raw = json.dumps({"meta": meta, "data": [_as_json(log) for log in logs]}).encode()
    headers = {"Content-Type": "application/json", "x-log-bodyrawsize": str(len(raw))}
    compression = accepted_compression(request)
    if compression != "none":
        headers["x-log-compresstype"] = compression
    return Answer(headers=headers, body=compress(raw, compression))


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object.

    :raises ApiError: ``PostBodyInvalid``, the body is something else; ``ParameterInvalid``, it holds a text that is not
        Unicode.
    """
    try:
        content = json.loads(body)
        text = json.dumps(content, ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise ApiError("PostBodyInvalid", f"the body is not JSON: {error}") from error
    _check_unicode(text)
    if not isinstance(content, dict):
        raise ApiError("PostBodyInvalid", "the body is not a JSON object")
    return content


def _check_unicode(text: str) -> None:
    # JSON can write half of a surrogate pair, which is no text: neither the store nor an answer can hold it.
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise ApiError("ParameterInvalid", f"a text in the body holds {half}, half of a surrogate pair") from error


def parse_wanted(params: Mapping[str, Any], limits: Limits) -> Wanted:
    """What the parameters ask for; those that this server does not know are ignored.

    :raises ApiError: ``ParameterInvalid``.
    """
    for name in ("from", "to"):
        if name not in params:
            raise ApiError("ParameterInvalid", f"{name} is missing: a search needs from and to, Unix seconds")
    return Wanted(
        search=Search(
            begin=_number(params, "from", 0), end=_number(params, "to", 0), topic=_text(params, "topic") or None
        ),
        matches=compile_query(_text(params, "query")),
        offset=_number(params, "offset", 0),
        line=_number(params, "line", limits.page_logs, limits.page_logs),
        reverse=str(params.get("reverse", "")).lower() == "true",
    )


def _number(params: Mapping[str, Any], name: str, default: int, high: int = (1 << 63) - 1) -> int:
    return parse_number(name, str(params.get(name, default)), 0, high)


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name) or ""
    if not isinstance(value, str):
        raise ApiError("ParameterInvalid", f"{name} must be text")
    return value


async def _find(service: Service, request: ApiRequest, wanted: Wanted) -> list[StoredLog]:
    kept: list[_Found] = []
    after = 0
    while True:
        groups = await service.stored(service.store.search(place_of(request), wanted.search, after, _GROUPS_AT_ONCE))
        kept = await service.offload(_sift, wanted, groups, kept)
        if len(groups) < _GROUPS_AT_ONCE:
            return [log for _, log in kept[wanted.offset :]]
        after = groups[-1].row


def _sift(wanted: Wanted, groups: list[PackedGroup], kept: list[_Found]) -> list[_Found]:
    begin, end = wanted.search.begin, wanted.search.end
    for group in groups:
        for index, log in enumerate(group.unpack().iter_logs()):
            if begin <= log.time < end and wanted.matches(log):
                kept.append(((log.time, log.time_ns, group.row, index), log))
    return wanted.keep(kept)


def _as_json(log: StoredLog) -> dict[str, str]:
    fields = {"__time__": str(log.time), "__source__": log.source, "__topic__": log.topic}
    if log.time_ns:
        fields["__time_ns_part__"] = str(log.time_ns)
    fields |= {f"__tag__:{key}": value for key, value in log.tags.items()}
    for key, value in log.contents:
        fields[key] = value if isinstance(value, str) else value.decode(errors="replace")
    return fields
