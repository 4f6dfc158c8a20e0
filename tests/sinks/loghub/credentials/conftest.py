"""The metadata service and STS for all tests of credentials."""

from collections.abc import Iterator

import pytest

from tests.support.aliyun import Aliyun, aliyun


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aliyun]:
    """The server, in place of the metadata service and STS."""
    with aliyun(monkeypatch) as server:
        yield server
