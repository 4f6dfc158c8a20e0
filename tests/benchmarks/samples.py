"""Check the server's counts and a sample of its bodies, so that no client can be fast by sending nothing."""

import base64
import functools
import gzip
import zlib
from collections.abc import Callable
from typing import Any

from producer.wire.compression import decompress
from producer.wire.schema import LogGroup

from .cases import Run
from .clients.protocol import Answer
from .shapes import Log, logs_of, streams_of

# Bytes of a log's nanoseconds, which are optional.
_NANOS_BYTES = 5
# Maximum bytes of a request's topic, source and tags.
_TAIL_BYTES = 1024
# A batch may end in the middle of a turn through the logs.
_PART = 0.005
_UNPACKED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress, "": bytes}


class WrongSampleError(AssertionError):
    """Raised when the arrived logs differ from the sent ones."""


@functools.lru_cache(maxsize=4)
def _record_sizes(shape: str) -> list[int]:
    """Return the bytes of each log of the shape in a LogGroup, without nanoseconds."""
    sizes = []
    for log in logs_of(shape):
        group = LogGroup()
        record = group.Logs.add(Time=1_700_000_000)
        for name, value in log.items():
            record.Contents.add(Key=name, Value=value.encode())
        sizes.append(group.ByteSize())
    return sizes


def _bounds(run: Run, requests: int) -> tuple[float, float]:
    """Return the minimum and maximum raw bytes; only those of whole turns through the logs are known exactly."""
    sizes = _record_sizes(run.shape)
    turns, rest = divmod(run.count // run.threads, len(sizes))
    least = run.threads * (turns * sum(sizes) + rest * min(sizes))
    most = run.threads * (turns * sum(sizes) + rest * max(sizes)) + run.count * _NANOS_BYTES + requests * _TAIL_BYTES
    return least * (1 - _PART), most * (1 + _PART)


def check(run: Run, answer: Answer, counts: dict[str, Any], complete: bool = True) -> None:
    """Check the delivered number, the bytes and the sample of a run that sends.

    :param complete: whether all logs must have been delivered, each once.
    :raises WrongSampleError: the number of logs or bytes is wrong, or the sample holds other logs.
    """
    if run.client.startswith("encoding"):
        return  # it compares its bytes itself, and encodes whole slices
    if complete and answer.delivered != run.count:
        raise WrongSampleError(f"{run.line}: {answer.delivered:,} of {run.count:,} logs were delivered")
    if run.client in ("kafka", "libraries"):
        return  # it does not send to the null server; its callbacks or the lines of its file were counted
    if counts["bad"]:
        raise WrongSampleError(f"{run.line}: {counts['bad']} requests with wrong headers, such as {counts['problem']}")
    if not counts["samples"]:
        raise WrongSampleError(f"{run.line}: no body arrived")
    if run.client == "otlp":
        _check_texts(run, counts)
    elif run.way in ("queued_handler", "logging") or run.client == "integrations":
        _check_groups(run, counts, exact=False)
    else:
        if complete:
            _check_bytes(run, counts)
        _check_groups(run, counts, exact=True)


def _check_bytes(run: Run, counts: dict[str, Any]) -> None:
    """Check that the raw bytes in the headers are those of the run's logs."""
    least, most = _bounds(run, counts["requests"])
    if not least <= counts["raw_bytes"] <= most:
        raise WrongSampleError(
            f"{run.line}: {counts['raw_bytes']:,} raw bytes arrived, "
            f"but {run.count:,} logs have {least:,.0f} to {most:,.0f}"
        )


def _check_groups(run: Run, counts: dict[str, Any], exact: bool) -> None:
    """Check that every log of the sample is a log of the shape, with all its fields, in a stream of the run."""
    logs = [_frozen(log) for log in logs_of(run.shape)]
    known, streams = set(logs), set(streams_of(run.streams))
    for sample in counts["samples"]:
        raw_size = int(sample["raw_size"])
        group = LogGroup.FromString(decompress(base64.b64decode(sample["body"]), sample["compression"], raw_size))
        if exact and (group.Topic, group.Source) not in streams:
            raise WrongSampleError(f"{run.line}: a request for the stream {group.Topic!r}, {group.Source!r}")
        for record in group.Logs:
            found = _frozen({content.Key: content.Value.decode() for content in record.Contents})
            if found not in known and (exact or not any(log <= found for log in logs)):
                raise WrongSampleError(f"{run.line}: a request holds a log that was not sent: {dict(found)}")


def _frozen(log: Log) -> frozenset[tuple[str, str]]:
    return frozenset(log.items())


def _check_texts(run: Run, counts: dict[str, Any]) -> None:
    """Check that each OTLP body holds all values of one of the logs unchanged."""
    logs = logs_of(run.shape)
    for sample in counts["samples"]:
        body = _UNPACKED[sample["encoding"]](base64.b64decode(sample["body"]))
        if not any(all(value.encode() in body for value in log.values()) for log in logs):
            raise WrongSampleError(f"{run.line}: a request holds none of the logs: {body[:200]!r}")
