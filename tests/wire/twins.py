"""The twins of the encoders, for tests that hold for both."""

import importlib.util
import os
from collections.abc import Iterator

import pytest

#: The compiled twins are there.
BUILT = importlib.util.find_spec("producer.wire._lines") is not None

#: For what only they do. Where they have to be, a run in which they are missing shows too little.
native = pytest.mark.skipif(
    os.environ.get("PRODUCER_PURE", "") not in ("", "0")
    or (not BUILT and os.environ.get("PRODUCER_BUILD") != "native"),
    reason="the compiled twins were not built, or are not wanted",
)
#: For ``parametrize``.
TWINS = ["pure", pytest.param("native", marks=native)]


@pytest.fixture(scope="module", params=TWINS)
def columnar_twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Columns are encoded by one twin, and then by the other."""
    from producer.wire.columnar import encoder, rows

    with pytest.MonkeyPatch.context() as patch:
        encode_rows = {"pure": rows.join_rows, "native": rows.measure_rows}[request.param]
        patch.setattr(encoder, "encode_rows", encode_rows)
        yield request.param
