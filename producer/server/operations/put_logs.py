"""PutLogs: one LogGroup, or several in batch mode, validated and stored as a whole.

Source: LogHub protocol, PutLogs, Limits and Idempotent write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from ...model.errors import CompressionError
from ...wire.compression import COMPRESSIONS, decompress
from ...wire.schema import LogPackageList
from ..errors import ApiError
from ..limits import Limits
from ..messages import Answer, ApiRequest, parse_number, too_large
from ..service import Call, Service
from ..store.log_groups import CheckedGroup, check_group
from ..store.rows import Route
from ..store.shards import parse_key
from .remote_write import is_remote_write, read_samples

_CONTENT_TYPE = "application/x-protobuf"
_PACKAGE_COMPRESSIONS = {0: "none", 1: "deflate", 2: "lz4", 3: "zstd"}


def bytes_held(request: ApiRequest, declared: int | None, limits: Limits) -> int:
    """Return the bytes of memory of a write: the body and its decoded form, each counted twice for copies.

    :raises ApiError: ``PostBodyTooLarge`` or ``ParameterInvalid``, the declared size is too large or invalid.
    """
    raw_size = _most_raw(request, limits)
    if raw_size > limits.raw_bytes:
        raise too_large(raw_size, limits.raw_bytes)
    return 2 * (raw_size + (limits.wire_bytes if declared is None else declared))


async def put_logs(service: Service, call: Call) -> Answer:
    """Store logs in any shard.

    Paths: ``POST /logstores/{logstore}``, ``…/shards/lb`` and ``/prometheus/{project}/{logstore}/api/v1/write``.
    """
    return await _store(service, call, None)


async def put_logs_by_key(service: Service, call: Call) -> Answer:
    """Store logs in the shard of a key: ``POST /logstores/{logstore}/shards/route?key=…[&seqid=…]``.

    A sequence number is accepted once.
    """
    return await _store(service, call, parse_route(call.request))


async def _store(service: Service, call: Call, route: Route | None) -> Answer:
    raw_size = _most_raw(call.request, service.limits)
    try:
        groups = await service.decode(raw_size, read_groups, call.request, call.body, service.limits)
    except ApiError:
        if service.refused_takes_number and route is not None and route.sequence is not None:
            await service.stored(service.store.append, call.place, [], route, service.now())
        raise
    if groups:
        await service.stored(service.store.append, call.place, groups, route, service.now())
    return Answer(logs=sum(group.count for group in groups))


def _most_raw(request: ApiRequest, limits: Limits) -> int:
    # In batch mode the header has the size of the body; packages and samples declare their own sizes.
    return limits.raw_bytes if _is_batch(request) or is_remote_write(request) else request.raw_size or 0


def parse_route(request: ApiRequest) -> Route:
    """Return the key and the sequence number of a write by key."""
    if "key" not in request.query:
        raise ApiError("ParameterInvalid", "the parameter key is missing: a write by key needs it")
    seqid = request.query.get("seqid")
    return Route(
        key=parse_key(request.query["key"]),
        sequence=None if seqid is None else parse_number("seqid", seqid),
    )


def read_groups(request: ApiRequest, body: bytes, limits: Limits) -> list[CheckedGroup]:
    """Return the LogGroups of a request after validation."""
    content_type = request.headers.get("content-type")
    if content_type is None or content_type.split(";")[0].strip().lower() != _CONTENT_TYPE:
        raise ApiError("InvalidContentType", f"Content-Type is {content_type!r}: send logs as {_CONTENT_TYPE}")
    if is_remote_write(request):
        raw = read_samples(request, body, limits)
        return [check_group(raw, limits)] if raw else []
    raw_size = request.raw_size
    if raw_size is None:
        raise ApiError("MissingBodyRawSize", "x-log-bodyrawsize is missing: send the body's bytes before compression")
    if _is_batch(request):
        return _read_packages(body, limits)
    return [check_group(_inflate(body, _compression_of(request), raw_size, limits), limits)]


def _is_batch(request: ApiRequest) -> bool:
    return request.headers.get("x-log-mode") == "batch_group"


def _compression_of(request: ApiRequest) -> str:
    name = request.headers.get("x-log-compresstype", "") or "none"
    if name not in COMPRESSIONS:
        raise ApiError("ParameterInvalid", f"x-log-compresstype is {name[:64]!r}: use {', '.join(COMPRESSIONS)}")
    return name


def _inflate(data: bytes, compression: str, raw_size: int, limits: Limits) -> bytes:
    """Decompress ``data``, never to more than the limit."""
    actual = len(data) if compression == "none" else raw_size
    if max(actual, raw_size) > limits.raw_bytes:
        raise too_large(max(actual, raw_size), limits.raw_bytes)
    try:
        return decompress(data, compression, raw_size)
    except CompressionError as error:
        raise ApiError("PostBodyUncompressError", str(error)) from error


def _read_packages(body: bytes, limits: Limits) -> list[CheckedGroup]:
    packages = LogPackageList()
    try:
        packages.ParseFromString(body)
    except DecodeError as error:
        raise ApiError("PostBodyInvalid", f"the body is not a list of packages: {error}") from error
    _check_batch(packages.packages, limits)
    return [check_group(_open_package(package, limits), limits) for package in packages.packages]


def _check_batch(packages: Sequence[Any], limits: Limits) -> None:
    """Refuse a batch that is too large, before any decompression."""
    if not packages:
        raise ApiError("PostBodyInvalid", "the body contains no package: send at least one")
    if len(packages) > limits.packages:
        raise ApiError(
            "PostBodyInvalid", f"the body contains {len(packages)} packages: at most {limits.packages} are allowed"
        )
    # Decompression stops at the declared sizes, so these bound the memory of all packages.
    total = sum(_raw_size_of(package) for package in packages)
    if total > limits.raw_bytes:
        raise too_large(total, limits.raw_bytes)


def _open_package(package: Any, limits: Limits) -> bytes:
    kind = package.compress_type if package.HasField("compress_type") else 2
    compression = _PACKAGE_COMPRESSIONS.get(kind)
    if compression is None:
        raise ApiError("PostBodyInvalid", f"compress_type of a package is {kind}: use 0, 1, 2 or 3")
    return _inflate(package.data, compression, _raw_size_of(package), limits)


def _raw_size_of(package: Any) -> int:
    return max(package.uncompress_size, 0) if package.HasField("uncompress_size") else len(package.data)
