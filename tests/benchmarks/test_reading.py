"""The benchmark of reading runs, and every way finds every log."""

from tests.benchmarks.reading import WAYS, answer_of, measure, report


def test_every_way_reads_every_log() -> None:
    """Each asserts how many it found; the table has a line for each."""
    answer = answer_of(2000)
    table = report(answer, measure(answer, 1))
    assert all(f"| {name} | " in table for name in WAYS)
