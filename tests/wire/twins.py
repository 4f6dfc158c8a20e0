"""Native and pure implementations of the encoders, for tests of both."""

import importlib.util
import os
from collections.abc import Iterator

import pytest

#: True if the native implementations are built.
BUILT = importlib.util.find_spec("producer.wire._lines") is not None

#: Marks tests of native code. A run that requires native code must not skip them.
native = pytest.mark.skipif(
    os.environ.get("PRODUCER_PURE", "") not in ("", "0")
    or (not BUILT and os.environ.get("PRODUCER_BUILD") != "native"),
    reason="the native implementations are not built, or not wanted",
)
#: For ``parametrize``.
TWINS = ["pure", pytest.param("native", marks=native)]


@pytest.fixture(scope="module", params=TWINS)
def columnar_twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Encode columns natively, then purely."""
    from producer.wire.columnar import encoder, rows

    with pytest.MonkeyPatch.context() as patch:
        encode_rows = {"pure": rows.join_rows, "native": rows.measure_rows}[request.param]
        patch.setattr(encoder, "encode_rows", encode_rows)
        yield request.param
