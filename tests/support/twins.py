"""The twins: what exists in readable Python, and compiled. Tests of one promise run with each of them."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from producer.pipeline.batching import accumulator
from producer.pipeline.batching.open_records import OpenRecords

#: By name, the classes that the ends of open batches can be made of.
OPEN_RECORDS = {"pure": OpenRecords}
with suppress(ImportError):
    from producer.pipeline.batching import _open_records

    if accumulator.OpenRecords is not OpenRecords:  # where the pure ones are forced, so is the memory that they take
        OPEN_RECORDS["native"] = _open_records.OpenRecords


@pytest.fixture(scope="module", params=OPEN_RECORDS)
def open_records_twin(request: pytest.FixtureRequest) -> Iterator[type[OpenRecords]]:
    """One of them, of which all batches are made meanwhile."""
    twin = OPEN_RECORDS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accumulator, "OpenRecords", twin)
        yield twin
