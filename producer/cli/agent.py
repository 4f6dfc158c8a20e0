"""The command ``producer agent``: run an agent; check, test, convert and explain its configuration.

Exit codes:

* 0: the configuration is valid, or the agent was stopped and shut down gracefully.
* 1: a channel cannot be opened, or a component did not stop in time. For ``check``: this machine lacks a resource that
  the configuration names, or a peer does not answer. For ``test``: a test or an interceptor failed.
* 2: the configuration or an argument is invalid.
* 130, 143: the agent received a second SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..agent.config import AgentConfig, read_properties, read_toml
from ..agent.config.explain import explain, overview
from ..agent.config.extras import extras_of, packages_of
from ..agent.config.json_schema import json_schema
from ..agent.config.options import AgentConfigError, Problem
from ..agent.config.units import hidden_by, unit
from ..agent.monitoring import address_of
from ..agent.recoveries import RECOVERIES
from ..agent.run.blueprint import Blueprint, SinkPart, draw
from ..agent.run.connections import answer, peers
from ..agent.run.convert import convert
from ..agent.run.former_channels import start_warnings
from ..agent.run.missing_resources import missing
from ..text.plural import counted
from ..text.printable import message
from . import agent_tap, agent_top, agent_trial
from .agent_program import STORY, Program
from .arguments.agent import add_arguments
from .exit_codes import ExitCode
from .output import say, tell
from .own_init import leave_process_1
from .profiles import UsageError

__all__ = ["add_arguments", "run"]

_AGENT = "loghub.agent"
#: The limit for a peer's answer to ``check --connect``.
_ANSWER_SECONDS = 10.0


def run(args: argparse.Namespace) -> int:
    """Run ``producer agent``, and return the exit code."""
    actions = {
        "check": _check,
        "convert": _convert,
        "explain": _explain,
        "schema": _schema,
        "tap": agent_tap.run,
        "test": _test,
        "top": agent_top.run,
        "unit": _unit,
        None: _run,
    }
    try:
        return actions[args.action](args)
    except AgentConfigError as error:
        tell(f"producer agent: {error}")
        return ExitCode.USAGE


def _run(args: argparse.Namespace) -> int:
    path = _path(args)
    if args.ends_process:
        leave_process_1()
    program = Program(
        lambda: _load(args),
        path,
        until_done=args.until_done,
        watch=not args.no_reload,
    )
    with _log_levels():
        return ExitCode.OK if program.run() else ExitCode.FAILED


@contextmanager
def _log_levels() -> Iterator[None]:
    """Set log levels for a running agent, and restore them at the end of the block."""
    # The sink `logger` exists to log events: show them.
    wanted = {"loghub.agent.sink.logger": logging.INFO}
    if logging.getLogger().level <= logging.WARNING:
        wanted[STORY] = wanted[RECOVERIES] = logging.INFO
    if logging.getLogger().level >= logging.INFO:
        # The sink logs each failed delivery: log its single attempts at --log-level DEBUG only.
        wanted["loghub.send_task"] = logging.ERROR
    with ExitStack() as undo:
        _hide_reports(undo, wanted)
        for name, level in wanted.items():
            logger = logging.getLogger(name)
            undo.callback(logger.setLevel, logger.level)
            logger.setLevel(level)
        yield


def _hide_reports(undo: ExitStack, wanted: dict[str, int]) -> None:
    """Have the agent log its reports, such as rotations of files, for the page of its monitoring only."""
    root, logged = logging.getLogger(), set(wanted)
    if root.level <= logging.INFO:
        return

    def is_shown(record: logging.LogRecord) -> bool:
        of_agent = record.name.startswith(f"{_AGENT}.") and record.name not in logged
        return not of_agent or record.levelno >= root.level

    wanted[_AGENT] = logging.INFO
    for handler in root.handlers:
        handler.addFilter(is_shown)
        undo.callback(handler.removeFilter, is_shown)


def _check(args: argparse.Namespace) -> int:
    config = _load(args)
    blueprint = draw(config)
    lacks = missing(blueprint)
    say(*_tree(blueprint, lacks=len(lacks)))
    for note in (*blueprint.notes, *start_warnings(blueprint), *(f"on this machine, {problem}" for problem in lacks)):
        tell(f"producer agent: {note}")
    answers = _connected(blueprint, ask=args.connect)
    return ExitCode.OK if answers and not lacks else ExitCode.FAILED


def _test(args: argparse.Namespace) -> int:
    return agent_trial.run(args, _load(args, unset=agent_trial.UNSET))


def _connected(blueprint: Blueprint, *, ask: bool) -> bool:
    """Query each peer of the agent, or list the peers that were not queried. Return False if one failed."""
    found = list(peers(blueprint))
    if found and not ask:
        names = ", ".join(dict.fromkeys(peer.where for peer in found))
        say(f"not checked: whether the peers of {names} answer; --connect checks that")
    if not ask:
        return True
    answers = [answer(peer, _ANSWER_SECONDS) for peer in found]
    for line, failed in answers:
        if failed:
            tell(f"producer agent: {line}")
        else:
            say(*message(line).split("\n"))
    return not any(failed for _, failed in answers)


def _convert(args: argparse.Namespace) -> int:
    if args.flume is None:
        raise UsageError("convert needs --flume FILE")
    text, notes, problems = convert(Path(args.flume), args.name)
    print(text, end="")
    for note in (*notes, *problems):
        tell(f"producer agent: {note}")
    return ExitCode.FAILED if problems else ExitCode.OK


def _explain(args: argparse.Namespace) -> int:
    try:
        print(overview() if args.type is None else explain(args.type))
    except LookupError as error:
        raise UsageError(error.args[0]) from error
    return ExitCode.OK


def _schema(_args: argparse.Namespace) -> int:
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return ExitCode.OK


def _unit(args: argparse.Namespace) -> int:
    known = read_toml(Path(args.config)) if args.config is not None and Path(args.config).is_file() else None
    state = None if known is None else _own_state(args.config, known)
    extras, packages = (["agent"], []) if known is None else (extras_of(known), packages_of(known))
    print(unit(args.kind, args.config, state, 30.0 if known is None else known.stop_timeout, extras, packages), end="")
    for path in hidden_by(args.kind, args.config, state):
        tell(
            f"producer agent: {path} is in a directory of temporary files, and the service gets an empty one of "
            "its own (PrivateTmp): move it elsewhere, or remove PrivateTmp from the unit"
        )
    return ExitCode.OK


def _own_state(config: str, read: AgentConfig) -> str | None:
    """Return the state directory that the file names, or None."""
    return str(Path(config).absolute().parent / read.state) if "state" in read.lines else None


def _path(args: argparse.Namespace) -> Path:
    """Return the path of the configuration file.

    :raises AgentConfigError: neither ``--config`` nor ``--flume`` is given, or both.
    """
    if bool(args.config) == bool(args.flume):
        message = "--config FILE or --flume FILE is needed" if not args.config else "--config or --flume, not both"
        raise AgentConfigError([Problem("", "", message)], "arguments")
    return Path(args.config or args.flume)


def _load(args: argparse.Namespace, *, unset: str | None = None) -> AgentConfig:
    """Load the configuration, with the values that arguments override.

    :param unset: as in :func:`read_toml`.
    :raises AgentConfigError: the file cannot be read.
    """
    path = _path(args)
    unknown = {"ignore_unknown": args.ignore_unknown}
    config = read_toml(path, unset=unset) if args.config else read_properties(path, args.name, **unknown)
    if not config.state.is_absolute():  # independent of the working directory
        config = dataclasses.replace(config, state=path.absolute().parent / config.state)
    if args.state is not None:
        config = dataclasses.replace(config, state=Path(args.state))
    if args.monitoring is not None:
        config = dataclasses.replace(config, monitoring=args.monitoring)
    for note in config.notes:
        tell(f"producer agent: {note}")
    return _with_monitoring_checked(config, None if args.monitoring else config.lines.get("monitoring"))


def _with_monitoring_checked(config: AgentConfig, line: int | None) -> AgentConfig:
    try:
        if config.monitoring:  # an empty one is reported already
            address_of(config.monitoring)
    except ValueError as error:
        wrong = Problem("agent", "monitoring", str(error), line)
        return dataclasses.replace(config, problems=(*config.problems, wrong))
    return config


def _tree(blueprint: Blueprint, *, lacks: int) -> Iterator[str]:
    """Yield the verdict, and the components in the order of the events' path.

    :param lacks: the number of resources that this machine lacks.
    """
    config = blueprint.config
    lacking = f", but this machine lacks {counted(lacks, 'resource')} that it names" if lacks else ""
    yield f"agent {config.name}: {config.origin} is valid{lacking}"
    yield f"  state       {config.state}"
    yield f"  monitoring  {config.monitoring or 'off'}"
    for name, source in config.sources.items():
        steps = [*(f"{each.name} ({each.type})" for each in source.interceptors)]
        if len(source.channels) > 1 or source.selector.type != "replicating":
            steps.append(f"{source.selector.type} selector")
        yield f"source {name} ({source.type})"
        yield f"  -> {' -> '.join([*steps, ', '.join(source.channels)])}"
    for name, channel in config.channels.items():
        yield f"channel {name} ({channel.type})"
        for part in blueprint.sinks.values():
            if part.channel == name:
                yield f"  -> {_sink(part, config)}"


def _sink(part: SinkPart, config: AgentConfig) -> str:
    letters = "" if part.dead_letters is None else f"; refused events -> {part.dead_letters}"
    sinks = ", ".join(f"{each.name} ({config.sinks[each.name].type})" for each in part.sinks)
    group = config.groups.get(part.name)
    if group is None:
        return f"sink {sinks}{letters}"
    return f"group {group.name} ({group.type}): {sinks}{letters}"
