"""PullLogs with SPL: a page of LogGroups, its logs sifted and their fields changed by a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import ApiError
from ..service import Call, Service
from ..sql_process import SqlResult
from ..store.log_groups import parse_group
from ..store.rows import PackedGroup
from .spl_text import OWN, PAGE, ROW, Pipeline, Step
from .sql import sql_process, while_wanted
from .sql_rows import SqlRows
from .sql_text import folded

#: A result is JSON: what was calculated may be several times as large there.
_JSON_FACTOR = 4

_Fields = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Sifted:
    """What a pipeline made of a page.

    :ivar raws: the LogGroups that still have logs.
    :ivar logs: how many logs these have.
    :ivar logs_before: how many the page had.
    :ivar bytes_before: how many bytes the page had, encoded.
    """

    raws: list[bytes]
    logs: int
    logs_before: int
    bytes_before: int


async def sift(service: Service, call: Call, pipeline: Pipeline, groups: list[PackedGroup]) -> Sifted:
    """Run the pipeline over a page.

    :raises ApiError: ``ParameterInvalid``, it cannot be run or takes too much; as a search.
    """
    limits, count = service.limits, sum(group.count for group in groups)
    most = _JSON_FACTOR * limits.pull_bytes
    statement = {
        "text": pipeline.statement,
        "most_rows": count,
        "cuts": False,
        "names": sorted(pipeline.sql.words - {"__time__"} | {ROW}),
        "tables": [([PAGE], {})],
        "memory_bytes": limits.sql_bytes,
        "result_bytes": most,
        "seconds": limits.search_seconds,
        "expressions": pipeline.expressions,
        "own": OWN,
    }
    async with sql_process(service, call, statement) as process:
        rows = SqlRows(pipeline.sql, limits, process.take_rows)
        await service.search(_show, groups, rows)
        result = await while_wanted(call, service.search(process.run, most))
        return await service.search(_changed, pipeline.steps, groups, result)


def _show(groups: list[PackedGroup], rows: SqlRows) -> None:
    for group in groups:
        for time, _, texts in group.unpack().scan():
            shown = [pair for pair in texts if not folded(pair[0]).startswith(OWN)]
            rows.add(time, [*shown, (ROW, str(rows.count))])
    rows.flush()


def _changed(steps: list[Step], groups: list[PackedGroup], result: SqlResult) -> Sifted:
    kept = _by_number(result, sum(group.count for group in groups))
    raws, before, size = list[bytes](), 0, 0
    for group in groups:
        raw = group.unpack().raw
        rows = [kept.get(number) for number in range(before, before + group.count)]
        before, size = before + group.count, size + len(raw)
        if any(rows):
            raws.append(raw if all(rows) and not steps else _change(raw, rows, steps))
    return Sifted(raws, len(kept), before, size)


def _by_number(result: SqlResult, count: int) -> dict[int, dict[str, str]]:
    """The rows by the numbers of their logs. What stands in a query may have made rows of its own."""
    numbers = {str(number): number for number in range(count)}
    found = {numbers[text]: row for row in result.rows if (text := row.get(ROW, "")) in numbers}
    if len(found) < len(result.rows):
        raise ApiError("ParameterInvalid", "the query of PullLogs gives rows that are no logs of the page")
    return found


def _change(raw: bytes, rows: list[dict[str, str] | None], steps: list[Step]) -> bytes:
    """An encoded LogGroup with those of its logs that have a row."""
    group = parse_group(raw)
    shared = [("__topic__", group.Topic.encode()), ("__source__", group.Source.encode())]
    shared += [(f"__tag__:{tag.Key}", tag.Value.encode()) for tag in group.LogTags]
    logs = [(log, row) for log, row in zip(group.Logs, rows, strict=True) if row is not None]
    for log, row in logs if steps else ():
        fields = _take_steps([(content.Key, content.Value) for content in log.Contents], shared, row, steps)
        del log.Contents[:]
        for key, value in fields:
            log.Contents.add(Key=key, Value=value)
    remaining = [log for log, _ in logs]
    del group.Logs[:]
    group.Logs.extend(remaining)
    return bytes(group.SerializeToString())


def _take_steps(fields: _Fields, shared: _Fields, row: dict[str, str], steps: list[Step]) -> _Fields:
    for step in steps:
        if step.operator == "extend":
            new = [(name, row[column].encode()) for name, column in step.fields if column in row]
        elif step.operator == "project-away":
            new = []
        else:
            values: dict[str, Any] = {folded(key): value for key, value in [*shared, *fields]}
            new = [(name, values[folded(old)]) for name, old in step.fields if folded(old) in values]
        new = [(name, value) for name, value in new if (name, value) not in shared]
        fields = [] if step.operator == "project" else list(_without(fields, step))
        fields += new
    return fields


def _without(fields: _Fields, step: Step) -> Iterator[tuple[str, bytes]]:
    """The fields that a step does not name."""
    gone = {folded(name) for name, _ in step.fields}
    if step.operator == "project-rename":
        gone |= {folded(old) for _, old in step.fields}
    return (pair for pair in fields if folded(pair[0]) not in gone)
