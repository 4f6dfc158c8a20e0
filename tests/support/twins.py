"""Run tests of one promise with the native and with the pure implementation."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from producer.pipeline.batching import accumulator
from producer.pipeline.batching.open_records import OpenRecords

#: The implementations of open batches, by name.
OPEN_RECORDS = {"pure": OpenRecords}
with suppress(ImportError):
    from producer.pipeline.batching import _open_records

    if accumulator.OpenRecords is not OpenRecords:  # where the pure ones are forced, so is their memory use
        OPEN_RECORDS["native"] = _open_records.OpenRecords


@pytest.fixture(scope="module", params=OPEN_RECORDS)
def open_records_twin(request: pytest.FixtureRequest) -> Iterator[type[OpenRecords]]:
    """Let all batches use one of the implementations inside the test."""
    twin = OPEN_RECORDS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accumulator, "OpenRecords", twin)
        yield twin
