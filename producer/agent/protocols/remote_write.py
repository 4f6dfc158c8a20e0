"""Conversion of Prometheus' remote write to events, each a sample in the format of a metric store.

The value of a sample is the body. The headers are ``__name__``, ``__labels__`` and ``__time_nano__``, as
:mod:`...wire.remote_write` describes them. A request is parsed one time series at a time (:mod:`.reckoning`). The
reckoning includes the logs made of the events, each of which repeats all labels.

Example: ``up{job="api"} 1`` is the body ``1`` with the headers ``__name__`` ``up``, ``__labels__`` ``job#$#api``, and
``__time_nano__`` ``1700000000123000000``.
"""

from __future__ import annotations

from sys import getsizeof
from typing import Any

from google.protobuf.message import DecodeError

from ...wire.remote_write import LABELS, NAME, NANOS, SeriesError, name_and_labels, nanoseconds, number
from ...wire.schema import TimeSeries
from ..events.batch import EventBatch
from .messages import MessageError, Parts, Schema
from .reckoning import Reckoning

#: Fields of a time series that are messages: labels, samples, exemplars, histograms.
_SERIES: Schema = {1: {}, 2: {}, 3: {1: {}}, 4: {}}
#: Bytes of a sample's own texts and of its entries in the columns.
_OF_SAMPLE = 200


class RemoteWriteError(ValueError):
    """Raised for a body that is not a WriteRequest."""


class Samples:
    """The samples of a request.

    :ivar refused: number of series that a metric store cannot store, and of such samples of other series.
    :ivar reason: the reason of the first refusal.
    """

    def __init__(self, reckoning: Reckoning) -> None:
        self._reckoning = reckoning
        self._values: list[bytes] = []
        self._names: list[str] = []
        self._labels: list[str] = []
        self._times: list[str] = []
        self.refused, self.reason = 0, ""

    def read(self, request: bytes) -> EventBatch:
        """Return the samples of a WriteRequest.

        :raises RemoteWriteError: it is invalid.
        :raises TooManyEventsError: it has too many samples.
        """
        parts = Parts(self._reckoning)
        try:
            for part in parts.of(memoryview(request), 1):
                data = bytes(part)
                parts.reckon(data, _SERIES)
                self._add(TimeSeries.FromString(data))
        except (DecodeError, MessageError) as error:
            raise RemoteWriteError(f"invalid WriteRequest: {error}") from error
        self._reckoning.settle()
        return EventBatch.of_columns(self._values, {NAME: self._names, LABELS: self._labels, NANOS: self._times})

    def _add(self, series: Any) -> None:
        try:
            name, labels = name_and_labels(series)
        except SeriesError as error:
            self._refuse(error)
            return
        size = _OF_SAMPLE + getsizeof(name) + getsizeof(labels)
        for sample in series.samples:
            try:
                time = nanoseconds(name, sample)
            except SeriesError as error:
                self._refuse(error)
                continue
            self._reckoning.count(1)
            self._reckoning.need(size)
            self._values.append(number(sample.value).encode())
            self._names.append(name)
            self._labels.append(labels)
            self._times.append(str(time))

    def _refuse(self, error: SeriesError) -> None:
        self.refused += 1
        self.reason = self.reason or str(error)
