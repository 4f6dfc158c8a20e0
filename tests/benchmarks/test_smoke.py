"""The benchmark runs, and cannot be fast by sending nothing."""

from __future__ import annotations

import pytest

from . import arrow, channels
from .__main__ import CASES, SHAPES, check_sample, main, measure, null_server, ours, report, take_counts


@pytest.mark.parametrize("shape", SHAPES)
def test_every_case_delivers_what_it_is_timed_for(shape: str) -> None:
    """A tiny round of each case: counted, decoded, reported."""
    found = measure(shape, 1000, 1)
    assert found.keys() == CASES.keys()
    assert all(rounds[0][1] > 0 for rounds in found.values())
    assert "aliyun-log-producer: send" in report(shape, 1000, found)


def test_a_sample_with_another_log_is_found_out() -> None:
    """The kept body is compared with what was sent."""
    with null_server() as port:
        ours(port, SHAPES["web"], 1000)
        with pytest.raises(AssertionError):
            check_sample(take_counts(port), SHAPES["java"])


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """As the documentation shows it."""
    assert main(["--shape", "web", "--count", "1000", "--rounds", "1"]) == 0
    assert "| ours: send |" in capsys.readouterr().out


def test_the_channels_benchmark_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """Commits, group commit, replay, and the durable producer beside the other."""
    assert channels.main(["--count", "1000", "--events", "2000", "--rounds", "1"]) == 0
    printed = capsys.readouterr().out
    for line in ("| file, fsync commit | 100 |", "| 16 |", "| from the log alone |", "| 8 | os |"):
        assert line in printed


def test_the_arrow_benchmark_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns beside dictionaries: the same bytes, and the same logs at the server."""
    assert arrow.main(["--count", "1000", "--rounds", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("| web | ") == printed.count("| java | ") == 2
