"""Rows in messages have their numbers, and the values of the columns of ``rowLabels``."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from producer.model.errors import ConfigError
from producer.spark.writing.options import Columns
from producer.spark.writing.planning import check_schema
from producer.spark.writing.rows import Rows

_BATCH = pa.RecordBatch.from_pydict({"path": ["/a", "/a", "/b"], "offset": [0, 7, 0], "text": ["x", "y", "z"]})


def labelled(*labels: str) -> Rows:
    return Rows(_BATCH, range(5, 8), labels)


def test_rows_are_named_by_number_and_label() -> None:
    """Rows are named by the numbers and labels of the first and the last one."""
    rows = labelled("path", "offset")
    assert str(rows) == "rows 5 to 7 (path /a, offset 0 to path /b, offset 0)"
    assert str(rows.pick(range(1, 2))) == "row 6 (path /a, offset 7)"
    assert str(rows.pick(pa.array([0, 2]))) == "rows 5 to 7 (2 of them; path /a, offset 0 to path /b, offset 0)"
    assert str(Rows.joined(rows.halves())) == str(rows)


def test_rows_without_labels_are_named_by_number() -> None:
    """Rows without labels are named by number."""
    assert str(labelled()) == "rows 5 to 7"
    assert str(labelled("gone").pick(range(1))) == "row 5"


def test_long_label_is_cut() -> None:
    """A long label is cut."""
    rows = Rows(pa.RecordBatch.from_pydict({"text": ["x" * 10_000]}), range(1), ("text",))
    assert len(str(rows)) < 300


def test_a_label_that_is_not_a_column_is_refused_with_the_closest_names() -> None:
    """A label that is not a column is refused with the closest names."""
    schema = StructType().add("path", "string").add("offset", "long")
    check_schema(schema, Columns(), ("path",))
    with pytest.raises(ConfigError, match="rowLabels: must be a column of the DataFrame; did you mean offset"):
        check_schema(schema, Columns(), ("path", "offsets"))
