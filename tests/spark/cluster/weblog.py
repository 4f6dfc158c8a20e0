"""Generated lines of a web server's log, and their digest, for jobs on the cluster, which get it by ``--py-files``.

The digest of a row is the first half of the MD5 of its sorted fields as ``key=value``. The digest of all rows is their
number and the sum of their digests, so it depends on every row, but not on their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The separator of a row's fields, which no field contains.
SEPARATOR = "\x1f"

#: The limit of the sum of digests.
MODULUS = 2**64

# The columns, sorted by name. A row has about 235 bytes.
_COLUMNS = {
    "agent": "concat('Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.', seed % 90, ' Chrome/', 80 + seed % 40)",
    "id": "cast(id as string)",
    "ip": "concat_ws('.', 10, seed % 251, shiftright(seed, 8) % 251, shiftright(seed, 16) % 251)",
    "latency": "cast((seed % 100000) / 1000 as decimal(6, 3))",
    "method": "element_at(array('GET', 'POST', 'PUT'), cast(seed % 3 + 1 as int))",
    "path": "concat('/shop/category-', seed % 97, '/article-', seed % 100003, '?session=', lower(hex(seed)))",
    "referer": "concat('https://www.example.com/search?q=', seed % 1000)",
    "size": "cast(seed % 65536 as string)",
    "status": "element_at(array('200', '200', '200', '304', '404', '503'), cast(seed % 6 + 1 as int))",
}


def weblog(session: SparkSession, count: int, partitions: int) -> DataFrame:
    """Return rows 0 to ``count`` - 1 of the log, with string columns."""
    numbers = session.range(0, count, numPartitions=partitions)
    seeded = numbers.selectExpr("id", "xxhash64(id) & 9223372036854775807 as seed")
    return seeded.selectExpr(*(f"cast({expression} as string) as {name}" for name, expression in _COLUMNS.items()))


def digest(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows, and the sum of their digests. All columns must be strings without null."""
    fields = ", ".join(f"concat('{name}=', `{name}`)" for name in sorted(rows.columns))
    row = f"conv(left(md5(concat_ws('{SEPARATOR}', {fields})), 16), 16, 10)"
    found = rows.selectExpr(f"cast({row} as decimal(20)) as row").selectExpr("count(*)", "sum(row)").first()
    assert found is not None
    return int(found[0]), int(found[1] or 0) % MODULUS
