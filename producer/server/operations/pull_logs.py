"""Reading a shard in order of arrival: cursors and PullLogs.

Source: LogHub protocol, Reading back.
"""

from __future__ import annotations

from ...wire.compression import compress
from ..errors import ApiError
from ..messages import Answer, ApiRequest, json_answer, parse_number
from ..service import Service, place_of
from ..store.rows import PackedGroup
from .cursors import decode_cursor, encode_cursor


async def read_shard(service: Service, request: ApiRequest, _body: bytes) -> Answer:
    """``GET /logstores/{logstore}/shards/{shard}?type=cursor|cursor_time|log``."""
    kind = request.query.get("type")
    handlers = {"cursor": _get_cursor, "cursor_time": _get_cursor_time, "log": _pull_logs}
    if kind not in handlers:
        raise ApiError("ParameterInvalid", f"type is {kind!r}: use {', '.join(handlers)}")
    return await handlers[kind](service, request, parse_number("shard", request.path_params["shard"]))


async def _get_cursor(service: Service, request: ApiRequest, shard: int) -> Answer:
    start = request.query.get("from", "")
    place = place_of(request)
    # Asked in every case: it also tells whether the shard exists.
    end = await service.stored(service.store.end_position(place, shard))
    if start == "begin":
        position = 0
    elif start == "end":
        position = end
    else:
        time = parse_number("from ('begin', 'end' or Unix seconds)", start)
        position = await service.stored(service.store.position_at(place, shard, time))
    return json_answer({"cursor": encode_cursor(position)})


async def _get_cursor_time(service: Service, request: ApiRequest, shard: int) -> Answer:
    position = _cursor(request, "cursor")
    groups = await _read(service, request, shard, range(position, position + 1))
    return json_answer({"cursor_time": int(groups[0].received if groups else service.now())})


async def _pull_logs(service: Service, request: ApiRequest, shard: int) -> Answer:
    if "query" in request.query or "processor" in request.query:
        raise ApiError("ParameterInvalid", "PullLogs with a query or a processor is not supported by this server")
    start = _cursor(request, "cursor")
    count = parse_number("count", request.query.get("count", "100"), 1, service.limits.pull_groups)
    stop = start + count
    if "end_cursor" in request.query:
        stop = min(stop, _cursor(request, "end_cursor"))
    groups = await _read(service, request, shard, range(start, stop))
    end = await service.stored(service.store.end_position(place_of(request), shard))
    return await service.offload(_list_answer, request, groups, start, end)


async def _read(service: Service, request: ApiRequest, shard: int, positions: range) -> list[PackedGroup]:
    return await service.stored(
        service.store.read_shard(place_of(request), shard, positions, service.limits.pull_bytes)
    )


def _cursor(request: ApiRequest, name: str) -> int:
    return decode_cursor(request.query.get(name, ""))


def _list_answer(request: ApiRequest, groups: list[PackedGroup], start: int, end: int) -> Answer:
    following = groups[-1].position + 1 if groups else start
    raw = b"".join(_framed(group.unpack().raw) for group in groups)
    compression = accepted_compression(request)
    headers = {
        "Content-Type": "application/x-protobuf",
        "x-log-cursor": encode_cursor(following),
        "x-log-count": str(len(groups)),
        "x-log-bodyrawsize": str(len(raw)),
    }
    if following >= end:
        headers["x-log-end-of-cursor"] = "1"
    if raw and compression != "none":
        headers["x-log-compresstype"] = compression
        raw = compress(raw, compression)
    return Answer(headers=headers, body=raw)


def accepted_compression(request: ApiRequest) -> str:
    """The first compression in ``Accept-Encoding`` that this server has, else ``none``.

    A list with ``gzip`` in it is the default of an HTTP library, which would not look at ``x-log-compresstype``.
    """
    wanted = request.headers.get("accept-encoding", "")
    names = [part.split(";")[0].strip().lower() for part in wanted.split(",")]
    if "gzip" in names:
        return "none"
    return next((name for name in names if name in ("lz4", "zstd", "deflate")), "none")


def _framed(raw: bytes) -> bytes:
    """One LogGroup as field 1 of a LogGroupList: protobuf messages concatenate, so nothing is decoded to be sent on."""
    size = len(raw)
    head = bytearray(b"\x0a")
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + raw
