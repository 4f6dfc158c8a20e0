"""Reads of a shard in order of arrival: cursors and PullLogs.

Source: LogHub protocol, Reading back.
"""

from __future__ import annotations

from ...wire.compression import compress
from ...wire.protobuf import varint
from ..errors import ApiError
from ..limits import Limits
from ..messages import Answer, ApiRequest, json_answer, parse_number
from ..service import Call, Service
from ..store import reading
from .cursors import decode_cursor, encode_cursor
from .spl import Sifted, sift
from .spl_text import Pipeline, read_spl
from .sql import check_length


def bytes_held(_request: ApiRequest, _declared: int | None, limits: Limits) -> int:
    """Return the bytes of memory of a read: LogGroups as stored, as sent, and as answered."""
    return 3 * max(limits.pull_bytes, limits.raw_bytes)


async def get_cursor(service: Service, call: Call) -> Answer:
    """Return a cursor: ``GET …/shards/{shard}?type=cursor&from=begin|end|seconds``."""
    shard = shard_number(call)
    start = call.request.query.get("from", "")
    if start == "end":
        position = await service.stored(reading.end_of, call.place, shard)
    else:
        time = 0 if start == "begin" else parse_number("from ('begin', 'end' or Unix seconds)", start)
        position = await service.stored(reading.position_since, call.place, shard, time, service.now())
    return json_answer({"cursor": encode_cursor(position)})


async def get_cursor_time(service: Service, call: Call) -> Answer:
    """Return a cursor's time: ``GET …/shards/{shard}?type=cursor_time&cursor=…``."""
    shard = shard_number(call)
    position, now = _cursor(call.request, "cursor"), service.now()
    received = await service.stored(reading.received_at, call.place, shard, position, now)
    return json_answer({"cursor_time": int(now if received is None else received)})


async def pull_logs(service: Service, call: Call) -> Answer:
    """Read LogGroups: ``GET …/shards/{shard}?type=log&cursor=…[&count=…&end_cursor=…&query=…]``, or ``type=logs``."""
    request, shard = call.request, shard_number(call)
    pipeline = _pipeline(request, service.limits)
    start = _cursor(request, "cursor")
    count = parse_number("count", request.query.get("count", "100"), 1, service.limits.pull_groups)
    # The end is read first, so that LogGroups that arrive meanwhile are beyond it, and none is skipped.
    end = await service.stored(reading.end_of, call.place, shard)
    stop = min(end, _cursor(request, "end_cursor")) if "end_cursor" in request.query else end
    groups = await service.stored(
        reading.read_shard,
        *(call.place, shard, range(start, max(start, stop)), service.now()),
        limit=count,
        max_raw_bytes=service.limits.pull_bytes,
    )
    # An empty range up to ``stop`` has expired.
    following = groups[-1].position + 1 if groups else max(start, stop)
    headers = {"x-log-cursor": encode_cursor(following)}
    if following >= end:
        headers["x-log-end-of-cursor"] = "1"
    if pipeline is None:
        raws = await service.offload(lambda: [group.unpack().raw for group in groups])
    else:
        sifted = await sift(service, call, pipeline, groups)
        raws = sifted.raws
        headers |= _sift_headers(sifted, len(groups))
    return await service.offload(_list_answer, request, raws, headers)


def _pipeline(request: ApiRequest, limits: Limits) -> Pipeline | None:
    """Return the SPL pipeline of the request, or None.

    :raises ApiError: ``ParameterInvalid``, it is invalid.
    """
    if "processor" in request.query:
        raise ApiError("ParameterInvalid", "this server has no consumer processors: send the processor's SPL as query")
    query = request.query.get("query", "")
    check_length(query, limits)
    return read_spl(query) if query.strip() else None


def _sift_headers(sifted: Sifted, groups: int) -> dict[str, str]:
    return {
        "x-log-rawdatacount": str(groups),
        "x-log-rawdatasize": str(sifted.bytes_before),
        "x-log-rawdatalines": str(sifted.logs_before),
        "x-log-resultlines": str(sifted.logs),
    }


def shard_number(call: Call) -> int:
    """Return the shard number in the path.

    :raises ApiError: ``ParameterInvalid``.
    """
    return parse_number("shard", call.request.path_params["shard"])


def _cursor(request: ApiRequest, name: str) -> int:
    return decode_cursor(request.query.get(name, ""))


def _list_answer(request: ApiRequest, raws: list[bytes], facts: dict[str, str]) -> Answer:
    # Heads and LogGroups are joined once: joining each LogGroup to its head first would copy all of them again.
    raw = b"".join(part for group in raws for part in (_head(len(group)), group))
    compression = accepted_compression(request)
    headers = {
        "Content-Type": "application/x-protobuf",
        "x-log-count": str(len(raws)),
        "x-log-bodyrawsize": str(len(raw)),
        **facts,
    }
    if raw and compression != "none":
        headers["x-log-compresstype"] = compression
        raw = compress(raw, compression)
    return Answer(headers=headers, body=raw)


def accepted_compression(request: ApiRequest) -> str:
    """Return the first supported compression in ``Accept-Encoding``, else ``none``.

    A list with ``gzip`` is an HTTP library's default, and such a library ignores ``x-log-compresstype``.
    """
    wanted = request.headers.get("accept-encoding", "")
    names = [part.split(";")[0].strip().lower() for part in wanted.split(",")]
    if "gzip" in names:
        return "none"
    return next((name for name in names if name in ("lz4", "zstd", "deflate")), "none")


def _head(size: int) -> bytes:
    """Return the protobuf head that makes ``size`` bytes an entry of a LogGroupList.

    Protobuf messages concatenate, so stored LogGroups are sent without decoding.
    """
    return b"\x0a" + varint(size)
