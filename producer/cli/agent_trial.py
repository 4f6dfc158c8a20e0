"""The action ``producer agent test``: run a configuration's tests, or show its work on sample lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

from ..agent.config.model import AgentConfig
from ..agent.config.options import nearest
from ..agent.run.blueprint import Blueprint, draw
from ..agent.run.trial import Outcome, Passage, Step, Trial, failures_of, text_of
from ..text.plural import counted
from .output import say, tell
from .profiles import UsageError

#: Maximum bytes of sample input: each event is shown.
_MOST = 16 << 20
#: The text that stands for references that this machine cannot resolve.
UNSET = "unset"


def run(args: argparse.Namespace, config: AgentConfig) -> int:
    """Run the tests of the file, or pass sample lines through a source; return the exit code.

    :raises AgentConfigError: the configuration is invalid.
    :raises UsageError: there are no tests, or no such source.
    """
    blueprint = draw(config)
    if args.source is not None:
        return _show(blueprint, args.source, _input(args.input), _headers(args.header))
    if args.input is not None or args.header:
        raise UsageError("--input and --header need the name of a source")
    if not config.tests:
        raise UsageError(f"{config.origin} has no [[tests]]; name a source to pass sample lines through it")
    return _run_tests(blueprint)


def _run_tests(blueprint: Blueprint) -> int:
    failed = 0
    for case in blueprint.config.tests:
        found = failures_of(case, blueprint)
        failed += bool(found)
        say(f"failed  {case.name} (line {case.line})" if found else f"ok      {case.name}")
        say(*(f"  {line}" for line in found))
    total = counted(len(blueprint.config.tests), "test")
    say(f"{failed} of {total} failed" if failed else f"{total} succeeded")
    return int(bool(failed))


def _show(blueprint: Blueprint, source: str, data: bytes, headers: Mapping[str, str]) -> int:
    """Print the path of each event. Return 1 if a stage fails for one."""
    if source not in blueprint.sources:
        raise UsageError(f"there is no source {source!r}{nearest(source, blueprint.sources)}")
    kind, failed = blueprint.config.sources[source].type, False
    with Trial(blueprint, source) as trial:
        if not trial.decodes:
            tell(f"producer agent: {kind} does not decode samples: each line is the body of an event")
        for name in trial.passed_over:
            tell(f"producer agent: {name} connects to a service, and is passed over")
        batch = trial.decoded(data, headers)
        for number, passage in enumerate(trial.passages(batch), 1):
            say(f"event {number} of {batch.count}", *(f"  {line}" for line in _lines(trial, passage, kind)))
            failed = failed or any(outcome.failure for outcome in passage.outcomes)
    return int(failed)


def _lines(trial: Trial, passage: Passage, kind: str) -> Iterator[str]:
    first, *others = passage.steps
    yield f"{first.name} ({kind})"
    yield from (f"  {line}" for line in _whole(first))
    before = first
    for step in others:
        changes = list(_changes(before, step))
        yield f"{step.name}{'' if changes else ': unchanged'}"
        yield from (f"  {line}" for line in changes)
        before = step
    for outcome in passage.outcomes:
        yield from _end(trial, outcome)


def _whole(step: Step) -> Iterator[str]:
    for headers, body in step.batch.events():
        yield f"body {text_of(body)!r}"
        yield from (f"{name} = {value!r}" for name, value in headers.items())


def _changes(before: Step, after: Step) -> Iterator[str]:
    """Yield the differences that an interceptor made."""
    if before.batch.count != 1 or after.batch.count != 1:
        yield from _whole(after) if after.batch.count else ("dropped",)
        return
    ((old, old_body),), ((new, new_body),) = before.batch.events(), after.batch.events()
    if old_body != new_body:
        yield f"body {text_of(new_body)!r}"
    yield from (f"- {name}" for name in old if name not in new)
    for name, value in new.items():
        if old.get(name) != value:
            yield f"{'~' if name in old else '+'} {name} = {value!r}"


def _end(trial: Trial, outcome: Outcome) -> Iterator[str]:
    """Yield the channels of an event, with the form that their sinks deliver."""
    if outcome.failure:
        yield outcome.failure
    elif not outcome.channels:
        yield f"-> dropped by {outcome.dropped_by}"
    for channel in outcome.channels:
        yield f"-> {channel}"
        for sink, text in trial.rendered(outcome.event, channel):
            yield from (f"  {sink}: {line}" for line in text.rstrip("\n").split("\n"))


def _input(path: str | None) -> bytes:
    """Return the sample input.

    :raises UsageError: it cannot be read, or is too large.
    """
    try:
        with nullcontext(sys.stdin.buffer) if path in (None, "-") else Path(path).open("rb") as file:
            data = file.read(_MOST + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    if len(data) > _MOST:
        raise UsageError(f"the sample has more than {_MOST >> 20} MiB: take fewer lines")
    return data


def _headers(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise UsageError(f"--header must be NAME=VALUE, got {pair!r}")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
