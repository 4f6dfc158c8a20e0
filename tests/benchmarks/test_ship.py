"""The benchmark of producer ship runs."""

from __future__ import annotations

import pytest

from tests.benchmarks import ship


def test_ship_is_measured_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    """Each kind of file has a line with its rate."""
    ship.main(["--megabytes=1", "--rounds=1", "--engines", "local"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["local", "text"], ["local", "apache"], ["local", "json"]]
    assert all("MB/s" in line for line in lines)
