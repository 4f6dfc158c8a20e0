"""Numbers in messages agree with their nouns."""

import re
from pathlib import Path

import pytest

from producer.text.plural import counted

PACKAGE = Path(__file__).parents[2] / "producer"
_NOUNS = "records|events|logs|batches|rows|lines|attempts|requests|shards|files|copies|directories|words|bytes"
_COUNTED = re.compile(rf"(?:%d|\{{(?!counted)[^{{}}]*\}}) (?!(?:of|holds) )(?:[a-z]+ )?(?:{_NOUNS})\b")
#: Numbers that are never one, or that only a bug shows.
_NEVER_ONE = (
    "a batch of %d logs is too large for the server; splitting it in two",
    "{len(records)} records from a batch of {batch.log_count} logs",
    'what = "a line" if',
    '"the only row was" if',
    "after {attempts} attempts",
    "after {_INCOMPLETE} requests",
    "the {logs} logs of this page",
    "the heartbeat names {len(held)} shards",
    "lines/s",
    "a transaction of {size} bytes is too large",
    "{MOST_OFFSET - FIRST_RECORD} bytes",
    "an event of {len(block) - 4 + len(body)} bytes is too large",
    "the name of a header has {len(encoded)} bytes, at most",
    "{KEY_SIZE} bytes",
    "{MAX_KEY_ID} bytes",
    "{MAX_NAME_BYTES} bytes",
    "{MAX_BATCH_COUNT} logs",
    "{MAX_BATCH_SIZE_IN_BYTES} bytes",
    "a note of {len(value)} bytes is invalid",
)


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (1, ("file",), "1 file"),
        (0, ("file",), "0 files"),
        (2, ("batch", "batches"), "2 batches"),
        (1, ("event is", "events are"), "1 event is"),
        (1000, ("line",), "1000 lines"),
    ],
)
def test_a_number_and_its_noun_agree(number: int, words: tuple[str, ...], said: str) -> None:
    """A number has the singular or the plural of its noun."""
    assert counted(number, *words) == said


def test_large_numbers_are_grouped_on_request() -> None:
    """Large numbers are grouped if asked for."""
    assert counted(1_000_000, "line", form=",") == "1,000,000 lines"


def test_messages_use_the_helper_for_plurals_except_in_the_agent_wire_errors_and_sql() -> None:
    """Messages use the helper for plurals, except in the agent, wire errors and SQL."""
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in ("agent", "wire") and path.parent.name != "sql_engine"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _COUNTED.search(line) and not any(allowed in line for allowed in _NEVER_ONE)
    ]
    assert found == []
