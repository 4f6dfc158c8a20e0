"""SPL: a pipeline that filters a page of LogGroups and changes the fields of its logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import ApiError
from ..service import Call, Service
from ..sql_process import SqlResult
from ..store.log_groups import StoredLogGroup, parse_group
from ..store.rows import PackedGroup
from .search import searching
from .spl_extract import Extraction, Limit
from .spl_fields import OWN, changed_group
from .spl_text import PAGE, ROW, Calculation, Pipeline, Step
from .sql import sql_process, while_connected
from .sql_rows import SqlRows
from .sql_text import folded

#: A result is JSON, where calculated values may be several times as large.
_JSON_FACTOR = 4

_Fields = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Sifted:
    """The result of a pipeline over a page.

    :ivar raws: the LogGroups that still have logs.
    :ivar logs: number of logs in these.
    :ivar logs_before: number of logs of the page.
    :ivar bytes_before: encoded bytes of the page.
    """

    raws: list[bytes]
    logs: int
    logs_before: int
    bytes_before: int


async def sift(service: Service, call: Call, pipeline: Pipeline, groups: list[PackedGroup]) -> Sifted:
    """Run the pipeline over a page.

    :raises ApiError: ``ParameterInvalid``, the pipeline fails or takes too much; or the search fails.
    """
    page = await service.search(lambda: [group.unpack() for group in groups])
    kept = await sifted(service, call, pipeline, page)
    before = sum(group.count for group in page), sum(len(group.raw) for group in page)
    return Sifted([group.raw for group in kept], sum(group.count for group in kept), *before)


async def sifted(
    service: Service, call: Call, pipeline: Pipeline, groups: list[StoredLogGroup]
) -> list[StoredLogGroup]:
    """Return the LogGroups that still have logs after the pipeline.

    :raises ApiError: ``ParameterInvalid``, the pipeline fails or takes too much; or the search fails.
    """
    for part in pipeline:
        if isinstance(part, Calculation):
            groups = await _calculated(service, call, part, groups)
        else:
            groups = await _extracted(service, part, groups)
    return groups


async def _extracted(service: Service, part: Extraction | Limit, groups: list[StoredLogGroup]) -> list[StoredLogGroup]:
    async with searching(service):
        limits = service.limits
        return await service.search(part.apply, groups, _JSON_FACTOR * limits.pull_bytes, limits.search_seconds)


async def _calculated(
    service: Service, call: Call, part: Calculation, groups: list[StoredLogGroup]
) -> list[StoredLogGroup]:
    limits, count = service.limits, sum(group.count for group in groups)
    most = _JSON_FACTOR * limits.pull_bytes
    statement = {
        "text": part.statement,
        "most_rows": count,
        "names": sorted(part.sql.words - {"__time__"} | {ROW}),
        "tables": [([PAGE], {})],
        "result_bytes": most,
        "seconds": limits.search_seconds,
        "expressions": part.expressions,
        "own": OWN,
    }
    async with sql_process(service, call, statement) as process:
        rows = SqlRows(part.sql, limits, process.take_rows)
        await service.search(_show, groups, rows)
        result = await while_connected(call, service.search(process.run, most))
        return await service.search(_changed, part.steps, groups, result)


def _show(groups: list[StoredLogGroup], rows: SqlRows) -> None:
    for group in groups:
        for time, _, texts in group.scan():
            shown = [pair for pair in texts if not folded(pair[0]).startswith(OWN)]
            rows.add(time, [*shown, (ROW, str(rows.count))])
    rows.flush()


def _changed(steps: list[Step], groups: list[StoredLogGroup], result: SqlResult) -> list[StoredLogGroup]:
    kept = _by_number(result, sum(group.count for group in groups))
    changed, before = list[StoredLogGroup](), 0
    for group in groups:
        rows = [kept.get(number) for number in range(before, before + group.count)]
        before += group.count
        if any(rows):
            is_whole = all(rows) and not steps
            count = sum(row is not None for row in rows)
            changed.append(group if is_whole else changed_group(group, _change(group.raw, rows, steps), count))
    return changed


def _by_number(result: SqlResult, count: int) -> dict[int, dict[str, str]]:
    """Return the rows by log number. A subquery may have made rows of its own, which are refused."""
    numbers = {str(number): number for number in range(count)}
    found = {numbers[text]: row for row in result.rows if (text := row.get(ROW, "")) in numbers}
    if len(found) < len(result.rows):
        raise ApiError("ParameterInvalid", "the SPL makes rows of its own: use it to filter and change logs")
    return found


def names_kept(steps: Iterable[Step]) -> set[str] | None:
    """Return the folded names of the shared fields that the steps keep; None for all.

    A ``project`` keeps the fields that it names, and the time. Topic, source and tags are fields like others.
    """
    kept: set[str] | None = None
    for step in steps:
        if step.operator == "project":
            named = {folded(old) for new, old in step.fields if folded(new) == folded(old)}
            kept = named if kept is None else kept & named
    return kept


def steps_of(pipeline: Pipeline) -> Iterator[Step]:
    """Yield the steps that change fields, without extractions."""
    for part in pipeline:
        if isinstance(part, Calculation):
            yield from part.steps


def _change(raw: bytes, rows: list[dict[str, str] | None], steps: list[Step]) -> bytes:
    """Return an encoded LogGroup with only the logs that have a row."""
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
    _keep_shared(group, names_kept(steps))
    return bytes(group.SerializeToString())


def _keep_shared(group: Any, kept: set[str] | None) -> None:
    if kept is None:
        return
    for name, field in (("__topic__", "Topic"), ("__source__", "Source")):
        if name not in kept:
            group.ClearField(field)
    tags = [tag for tag in group.LogTags if folded(f"__tag__:{tag.Key}") in kept]
    del group.LogTags[:]
    group.LogTags.extend(tags)


def _take_steps(fields: _Fields, shared: _Fields, row: dict[str, str], steps: list[Step]) -> _Fields:
    for step in steps:
        if step.operator in ("extend", "parse-regexp"):
            new = [(name, row[column].encode()) for name, column in step.fields if column in row]
        elif step.operator == "project-away":
            new = []
        else:
            values: dict[str, Any] = {folded(key): value for key, value in [*shared, *fields]}
            new = [(name, values[folded(old)]) for name, old in step.fields if folded(old) in values]
        new = [(name, value) for name, value in new if (name, value) not in shared]
        kept = names_kept([step])
        if kept is not None:
            shared = [pair for pair in shared if folded(pair[0]) in kept]
        gone = _gone(step, new)
        fields = [] if step.operator == "project" else [pair for pair in fields if folded(pair[0]) not in gone]
        fields += new
    return fields


def _gone(step: Step, new: _Fields) -> set[str]:
    """Return the fields that a step removes or replaces; a pattern that does not match leaves its field unchanged."""
    names = [name for name, _ in (new if step.operator == "parse-regexp" else step.fields)]
    if step.operator == "project-rename":
        names += [old for _, old in step.fields]
    return set(map(folded, names))
