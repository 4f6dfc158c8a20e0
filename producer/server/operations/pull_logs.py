"""Reading a shard in order of arrival: cursors and PullLogs.

Source: LogHub protocol, Reading back.
"""

from __future__ import annotations

from ...wire.compression import compress
from ...wire.protobuf import varint
from ..errors import ApiError
from ..limits import Limits
from ..messages import Answer, ApiRequest, json_answer, parse_number
from ..service import Call, Service
from .cursors import decode_cursor, encode_cursor
from .spl import Sifted, sift
from .spl_text import Pipeline, read_spl
from .sql import check_length


def bytes_held(_request: ApiRequest, _declared: int | None, limits: Limits) -> int:
    """Bytes of memory that a read takes: LogGroups as they are stored, as they were sent, and as they are answered."""
    return 3 * max(limits.pull_bytes, limits.raw_bytes)


async def get_cursor(service: Service, call: Call) -> Answer:
    """``GET /logstores/{logstore}/shards/{shard}?type=cursor&from=begin|end|seconds``."""
    shard = shard_number(call)
    start = call.request.query.get("from", "")
    if start == "end":
        position = await service.stored(service.store.end_position(call.place, shard))
    else:
        time = 0 if start == "begin" else parse_number("from ('begin', 'end' or Unix seconds)", start)
        position = await service.stored(service.store.position_since(call.place, shard, time, service.now()))
    return json_answer({"cursor": encode_cursor(position)})


async def get_cursor_time(service: Service, call: Call) -> Answer:
    """``GET /logstores/{logstore}/shards/{shard}?type=cursor_time&cursor=…``."""
    shard = shard_number(call)
    position, now = _cursor(call.request, "cursor"), service.now()
    received = await service.stored(service.store.received_at(call.place, shard, position, now))
    return json_answer({"cursor_time": int(now if received is None else received)})


async def pull_logs(service: Service, call: Call) -> Answer:
    """``GET /logstores/{logstore}/shards/{shard}?type=log&cursor=…[&count=…&end_cursor=…&query=…]``, or
    ``type=logs``.
    """
    request, shard = call.request, shard_number(call)
    pipeline = _pipeline(request, service.limits)
    start = _cursor(request, "cursor")
    count = parse_number("count", request.query.get("count", "100"), 1, service.limits.pull_groups)
    # The end first: what arrives between the two questions is then behind this end, and nothing is passed over.
    end = await service.stored(service.store.end_position(call.place, shard))
    stop = min(end, _cursor(request, "end_cursor")) if "end_cursor" in request.query else end
    groups = await service.stored(
        service.store.read_shard(
            *(call.place, shard, range(start, max(start, stop)), service.now()),
            limit=count,
            max_raw_bytes=service.limits.pull_bytes,
        )
    )
    # Where there is nothing up to ``stop``, it has expired.
    following = groups[-1].position + 1 if groups else max(start, stop)
    headers = {"x-log-cursor": encode_cursor(following)}
    if following >= end:
        headers["x-log-end-of-cursor"] = "1"
    if pipeline is None:
        raws = await service.offload(lambda: [group.unpack().raw for group in groups])
    else:
        sifted = await sift(service, call, pipeline, groups)
        raws = sifted.raws
        headers |= _told(sifted, len(groups))
    return await service.offload(_list_answer, request, raws, headers)


def _pipeline(request: ApiRequest, limits: Limits) -> Pipeline | None:
    """The SPL of the request, if it has any.

    :raises ApiError: ``ParameterInvalid``, it cannot be read.
    """
    if "processor" in request.query:
        raise ApiError("ParameterInvalid", "this server keeps no processors of consumers: send what it does as query")
    query = request.query.get("query", "")
    check_length(query, limits)
    return read_spl(query) if query.strip() else None


def _told(sifted: Sifted, groups: int) -> dict[str, str]:
    return {
        "x-log-rawdatacount": str(groups),
        "x-log-rawdatasize": str(sifted.bytes_before),
        "x-log-rawdatalines": str(sifted.logs_before),
        "x-log-resultlines": str(sifted.logs),
    }


def shard_number(call: Call) -> int:
    """The shard in the path.

    :raises ApiError: ``ParameterInvalid``.
    """
    return parse_number("shard", call.request.path_params["shard"])


def _cursor(request: ApiRequest, name: str) -> int:
    return decode_cursor(request.query.get(name, ""))


def _list_answer(request: ApiRequest, raws: list[bytes], told: dict[str, str]) -> Answer:
    # Heads and LogGroups side by side, since a LogGroup joined to its head would be one more copy of everything.
    raw = b"".join(part for group in raws for part in (_head(len(group)), group))
    compression = accepted_compression(request)
    headers = {
        "Content-Type": "application/x-protobuf",
        "x-log-count": str(len(raws)),
        "x-log-bodyrawsize": str(len(raw)),
        **told,
    }
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


def _head(size: int) -> bytes:
    """What makes the ``size`` bytes behind it field 1 of a LogGroupList: protobuf messages concatenate, so nothing is
    decoded to be sent on.
    """
    return b"\x0a" + varint(size)
