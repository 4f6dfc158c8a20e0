"""Ships standard input as it arrives: ``producer ship -``.

This process reads and sends. Lines are sent after the producer's linger time at the latest, even if the input never
ends. At the end of the input, and on SIGINT or SIGTERM, all lines read so far are sent, and their acknowledgement is
awaited.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console

from ..client.producer import Producer
from ..model.errors import CloseTimeoutError, ProducerError
from ..runtime.signals import on_stop_signal
from .delivery import is_timeout
from .figures import Figures
from .files.decoded import Converter
from .job import ShipJob
from .lines.line import READ_BYTES, Block, Line, blocks_of, without_mark
from .lines.log_start import start_pattern
from .report import Shipment, progress_bar
from .sending import PortionSender, Shipping

#: The name of standard input on the command line, in tags and in messages.
STANDARD_INPUT = "-"

_POLL_SECONDS = 0.2


def ship_standard_input(job: ShipJob, *, settle: float, console: Console, descriptor: int = 0) -> Shipment:
    """Ship until the input ends, or SIGINT or SIGTERM arrives, and wait until each line is acknowledged.

    :param job: the target and the settings of the job.
    :param settle: time without new input after which a multi-line log is complete, seconds.
    :param console: the console that shows the progress.
    :param descriptor: the file descriptor of the input.
    """
    began, figures = time.monotonic(), Figures()
    stop = threading.Event()
    failure = None
    with (
        on_stop_signal(lambda _: stop.set()),
        progress_bar(console, None) as bar,
        Producer(job.project, config=job.config) as producer,
    ):
        producer._losses.mute()
        shipping = Shipping(PortionSender(producer, job), STANDARD_INPUT, figures)

        def idle() -> None:
            shipping.delivery.settle()
            bar.show(figures)

        try:
            for lines in _lines(Pipe(descriptor, stop, idle, job.encoding), job, settle):
                shipping.add(lines)
            shipping.delivery.finish()
        except (ProducerError, OSError) as error:
            failure = str(error)
            if isinstance(error, ProducerError) and is_timeout(error):
                with contextlib.suppress(CloseTimeoutError):
                    producer.close(0)
        figures.memory_wait_ms = round(1000 * producer.stats().memory_wait_seconds)
        bar.show(figures)
    return Shipment(figures, time.monotonic() - began, failure=failure)


class Pipe(io.BufferedIOBase):
    """A reader of a descriptor that returns bytes in UTF-8 as they arrive, until the end or a stop.

    :param descriptor: the file descriptor to read.
    :param stop: the event that ends the input.
    :param idle: a callback after each read, and several times a second without input.
    :param encoding: the encoding of the input; empty for UTF-8.
    """

    def __init__(self, descriptor: int, stop: threading.Event, idle: Callable[[], None], encoding: str = "") -> None:
        self._descriptor = descriptor
        self._stop = stop
        self._idle = idle
        self._converter = Converter(encoding) if encoding else None

    def read1(self, size: int = -1, /) -> bytes:
        """Return the bytes that have arrived; nothing at the end."""
        return self.read_within(size, None) or b""

    def read_within(self, size: int, seconds: float | None) -> bytes | None:
        """Return the bytes that have arrived; nothing at the end; None if none arrived within ``seconds``."""
        waited = time.monotonic()
        while not self._stop.is_set():
            self._idle()
            if select.select([self._descriptor], [], [], _POLL_SECONDS)[0]:
                data = os.read(self._descriptor, size if size >= 0 else READ_BYTES)
                if (text := self._text(data)) or not data:
                    return text
            if seconds is not None and time.monotonic() - waited >= seconds:
                return None
        return self._text(b"")

    def _text(self, data: bytes) -> bytes:
        """Return bytes in UTF-8; at the end, the kept bytes of an incomplete character."""
        return data if self._converter is None else self._converter.add(data, final=not data)


def _lines(pipe: Pipe, job: ShipJob, settle: float) -> Iterator[Block | Line]:
    if job.multiline_start is None:
        return without_mark(blocks_of(pipe, 0, None, limit=None, max_line_bytes=job.max_line_bytes))
    return without_mark(_logs(pipe, job, settle))


def _logs(pipe: Pipe, job: ShipJob, settle: float) -> Iterator[Block | Line]:
    """Yield multi-line logs; the last one is complete at the next log, after its settle time, or at the end."""
    from .lines.logs import LogSplitter  # It needs NumPy, which takes long to import.

    splitter = LogSplitter(0, job.max_line_bytes, start_pattern(job.multiline_start or ""), in_log=True)
    while True:
        chunk = pipe.read_within(READ_BYTES, settle if splitter.pending else None)
        if not chunk:
            yield from splitter.finish()
        else:
            yield from splitter.add(chunk)
        if chunk == b"":
            return
