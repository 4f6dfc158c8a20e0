"""The commands ``producer projects``, ``logstores``, ``create`` and ``check``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..reading.errors import LogHubReadError
from ..text.names import LOGSTORE_RULE, is_logstore_name
from .exit_codes import ExitCode
from .loghub import LogHub
from .output import print_rows, say, tell
from .profiles import UsageError, resolve

_OF_A_PROJECT = ("projectName", "region", "status", "description", "createTime")
_OF_A_LOGSTORE = ("logstoreName", "shardCount", "ttl", "createTime")
#: The service's error codes for a project or logstore that exists.
_EXISTS = ("ProjectAlreadyExist", "LogStoreAlreadyExist", "LogstoreAlreadyExist")


def projects(args: argparse.Namespace) -> int:
    """List the projects, and return the exit code."""
    with LogHub(resolve(args, os.environ), args.timeout, needs_project=False) as loghub:
        found = (_facts(project, _OF_A_PROJECT) for project in loghub.projects())
        print_rows(args.output, found, _OF_A_PROJECT)
    return ExitCode.OK


def logstores(args: argparse.Namespace) -> int:
    """List the logstores of a project, and return the exit code."""
    with LogHub(resolve(args, os.environ), args.timeout) as loghub:
        names = loghub.logstores()
        found = (_facts(loghub.logstore(n), _OF_A_LOGSTORE) if args.details else {"logstoreName": n} for n in names)
        print_rows(args.output, found, _OF_A_LOGSTORE)
    return ExitCode.OK


def create(args: argparse.Namespace) -> int:
    """Create a project or a logstore, and return the exit code."""
    _take_name(args)
    settings = resolve(args, os.environ)
    name = settings.needed("project") if args.what == "project" else settings.needed("logstore")
    if args.what == "logstore" and not is_logstore_name(name):  # some servers create logstores that accept no log
        raise UsageError(f"--logstore {LOGSTORE_RULE}, got {name!r}")
    with LogHub(settings, args.timeout) as loghub:
        try:
            if args.what == "project":
                loghub.create_project(args.description)
            else:
                loghub.create_logstore(args.shards, args.ttl)
                if args.index:
                    loghub.create_index()
        except LogHubReadError as error:
            if not args.if_not_exists or not any(code in str(error) for code in _EXISTS):
                raise
            tell(f"{args.what} {name} exists already")
        else:
            tell(f"{args.what} {name} is created")
    return ExitCode.OK


def _take_name(args: argparse.Namespace) -> None:
    """Set the flag of the name from the positional argument.

    :raises UsageError: the flag has another name.
    """
    flagged = getattr(args, args.what)
    if args.name is None:
        return
    if flagged not in (None, args.name):
        raise UsageError(f"two names for one {args.what}: {args.name} and --{args.what} {flagged}; give one")
    setattr(args, args.what, args.name)


def check(args: argparse.Namespace) -> int:
    """Check that logs would arrive, and return the exit code."""
    from ..client.producer import Producer  # the other commands do not need it

    settings = resolve(args, os.environ)
    project = settings.project_config()
    with Producer(project, config=settings.producer_config()) as producer:
        say(*producer.check(project.project, settings.logstore, timeout=args.timeout).split("\n"))
    return ExitCode.OK


def _facts(found: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    facts = {name: found[name] for name in names if name in found}
    if str(facts.get("createTime", "")).isdigit():  # otherwise the service formatted it
        facts["createTime"] = datetime.fromtimestamp(int(facts["createTime"]), UTC).isoformat().replace("+00:00", "Z")
    return facts
