"""The benchmark of reading runs, and every way decodes every log."""

from tests.benchmarks.reading import WAYS, answer_of, measure, report


def test_every_way_decodes_all_logs_and_has_a_row_in_the_table() -> None:
    """Every way decodes all logs and has a row in the table."""
    answer = answer_of(2000)
    table = report(answer, measure(answer, 1))
    assert all(f"| {name} | " in table for name in WAYS)
