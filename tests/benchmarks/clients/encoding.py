"""Measure encoding and compression without a server: ``python -m tests.benchmarks.clients.encoding``.

The figure is the share of lz4's speed that remains if the logs are encoded first: by columns, by lines or one by one,
all on one thread. Lines go the producer's own way from the block to the compressed body of a request.
"""

from collections.abc import Callable

import pyarrow as pa

from producer.model.records import StreamKey
from producer.sinks.loghub.codec import Codec
from producer.wire.columnar import ColumnarEncoder
from producer.wire.compression import compress
from producer.wire.speed import encode_lines, encode_log

from ..shapes import logs_of
from .protocol import Answer, Job, serve, timed

NOW = 1_700_000_000
#: Rows that are encoded at once, as by ``send_arrow``: about two megabytes of the web shape. Lines of a batch.
SLICE, LINES = 8000, 4000
_KEY, _CODEC = StreamKey("p", "bench", "topic-0", "source-0"), Codec("protobuf", "lz4")


class Work:
    """The logs of a job's shape, with a method for each step that is measured on a slice of them."""

    def __init__(self, shape: str, size: int) -> None:
        logs = logs_of(shape)
        self._rows = [logs[row % len(logs)] for row in range(size)]
        self._batch = pa.RecordBatch.from_pylist(self._rows)
        self._columns = ColumnarEncoder(self._batch.schema)
        self._body = bytes(self.columns())
        assert self._body == self.logs(), "columns and logs are encoded to different bytes"
        self._block = b"".join(row.get("content", "").encode() + b"\n" for row in self._rows)
        assert shape != "lines" or self._body == bytes(self.lines()), "lines and logs are encoded to different bytes"

    def columns(self) -> memoryview:
        return self._columns.encode(self._batch, NOW).body

    def logs(self) -> bytes:
        return b"".join([encode_log(row, NOW) for row in self._rows])

    def lines(self) -> bytes | memoryview:
        return encode_lines(self._block, 0, b"content", NOW, 0, 2**30, 2**30, True).records

    def lz4(self) -> bytes:
        """Compress the same bytes, which were encoded before the measurement."""
        return compress(self._body, "lz4")

    def columns_lz4(self) -> bytes:
        return compress(self.columns(), "lz4")

    def lines_lz4(self) -> bytes:
        """Encode a block of lines and compress it into the body of a request."""
        return _CODEC.encode(_KEY, None, [self.lines()]).body


def way(step: Callable[[Work], bytes | memoryview]) -> Callable[[Job], Answer]:
    """Return a way that runs a step on each slice of a job's logs."""

    def run(job: Job) -> Answer:
        size = min(LINES if job.shape == "lines" else SLICE, job.count)
        work = Work(job.shape, size)
        return timed(lambda: sum(len(step(work)) > 0 for _ in range(job.count // size)) * size)

    return run


_STEPS = (Work.columns, Work.logs, Work.lines, Work.lz4, Work.columns_lz4, Work.lines_lz4)
WAYS = {step.__name__: way(step) for step in _STEPS}

if __name__ == "__main__":
    serve(WAYS)
