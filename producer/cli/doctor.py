"""The command ``producer doctor``: examine each step between this machine and a logstore, one line for each."""

from __future__ import annotations

import argparse
import os
import platform
import re
import time
import uuid
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import NamedTuple

from .. import __version__
from ..client.check import in_time
from ..client.producer import Producer
from ..model.config import HttpConfig
from ..model.errors import ProducerError, ResultFailedError, TargetError
from ..reading.errors import LogHubReadError
from ..sinks.http.transport import target_of
from ..text.names import CREATED_BY_A_WRITE
from ..text.plural import counted
from ..text.printable import masked, message
from ..wire.speed import TWIN
from .doctor_route import NotNeededError, Route, StepError
from .exit_codes import ExitCode
from .loghub import LogHub
from .output import say, tell
from .profiles import Settings, resolve

#: The pause between two reads of the log that was written, seconds.
_PAUSE = 0.2
_DISTRIBUTION = "loghub-producer"
_VARIABLES = re.compile(
    r"LOGHUB_.*|ALIBABA_CLOUD_.*|(?:https?|all|no)_proxy|(?:requests|curl)_ca_bundle", re.IGNORECASE
)
_TO_LIST = "listing needs log:ListLogStores; a key that only sends does not (--write-only)"
_TO_READ = "reading needs log:GetCursorOrData and log:ListShards; a key that only sends does not (--write-only)"


class _Step(NamedTuple):
    """A step of the examination.

    :ivar work: returns the finding, or raises.
    :ivar needs: the steps without which this one is skipped.
    """

    name: str
    work: Callable[[], str]
    needs: Sequence[str] = ()


def run(args: argparse.Namespace) -> int:
    """Examine the route to a logstore, and return the exit code."""
    settings = resolve(args, os.environ)
    settings.check_given("endpoint", "project", "logstore")
    examination = _Examination(settings, args)
    failed: list[str] = []
    unknown: set[str] = set()
    for step in examination.steps():
        blocked = next((name for name in step.needs if name in unknown), "")
        mark, words = ("skipped", f"{blocked} failed") if blocked else _outcome(step)
        if mark == "FAILED":
            failed.append(step.name)
        if mark == "FAILED" or blocked:
            unknown.add(step.name)
        say(*message(examination.masked(f"{mark:<9}{step.name:<13}{words}")).split("\n"), flush=True)
    if failed:
        tell(f"producer doctor: {counted(len(failed), 'step', 'steps')} failed: {', '.join(failed)}")
    return ExitCode.FAILED if failed else ExitCode.OK


def _outcome(step: _Step) -> tuple[str, str]:
    try:
        return "ok", step.work()
    except NotNeededError as reason:
        return "skipped", str(reason)
    except (ProducerError, OSError, ValueError) as error:
        return "FAILED", str(error)


def _name_of(name: str, number: int) -> str:
    """Return the name of a step at an endpoint; those of the first endpoint have no number."""
    return name if number == 1 else f"{name}-{number}"


def _steps_of(route: Route, number: int) -> Sequence[_Step]:
    """Return the steps on the route to an endpoint."""
    proxy, dns, connection, tls, clock = (
        _name_of(name, number) for name in ("proxy", "dns", "connection", "tls", "clock")
    )
    return (
        _Step(proxy, route.find_proxy),
        _Step(dns, route.resolve, (proxy,)),
        _Step(connection, route.connect, (proxy, dns)),
        _Step(tls, route.handshake, (connection,)),
        _Step(clock, route.compare_clocks, (connection, tls)),
    )


class _Examination:
    """The steps, and the facts that later ones take from earlier ones."""

    def __init__(self, settings: Settings, args: argparse.Namespace) -> None:
        self._settings, self._args, self._timeout = settings, args, args.timeout
        self._project = settings.project_config()
        self._logstore = settings.needed("logstore")
        milliseconds = max(1, int(args.timeout * 1000))
        self._limits = {
            "retries": 2,
            "delivery_timeout_ms": milliseconds,
            "drain_timeout_ms": 0,
            "http": HttpConfig(attempt_timeout_ms=milliseconds),
        }
        self._config = settings.producer_config(**self._limits)
        self._cursors: dict[str, str] = {}
        self._id = uuid.uuid4().hex
        self._secrets = [settings.access_key_secret, settings.security_token]
        self._routes = [
            Route(target_of(each.project, each.endpoint), self._config.http, args.timeout, self._secrets)
            for each in self._project.at_each_endpoint()
        ]

    def steps(self) -> Sequence[_Step]:
        """Return the steps, in the order of the route."""
        return (
            _Step("version", self._version),
            _Step("encoders", self._encoders),
            _Step("environment", self._environment),
            _Step("credentials", self._credentials),
            *(step for number, route in enumerate(self._routes, 1) for step in _steps_of(route, number)),
            _Step(
                "key", self._ask, ("credentials", *self._at_each_endpoint("connection"), *self._at_each_endpoint("tls"))
            ),
            _Step("list", self._list, ("key",)),
            _Step("write", self._write, ("key",)),
            _Step("read", self._read, ("key", "write")),
        )

    def _at_each_endpoint(self, name: str) -> Sequence[str]:
        return [_name_of(name, number) for number, _ in enumerate(self._routes, 1)]

    def masked(self, line: str) -> str:
        """Return a line without the secrets that are known."""
        return masked(line, self._secrets)

    def _version(self) -> str:
        libraries = ", ".join(f"{name} {metadata.version(name)}" for name in _requirements())
        python = f"{platform.python_implementation()} {platform.python_version()}"
        return f"producer {__version__}, {python}, {platform.platform()}" + (f"; {libraries}" if libraries else "")

    @staticmethod
    def _encoders() -> str:
        if TWIN == "native":
            return "native"
        return "pure Python: correct, but several times slower; install a wheel, or a C compiler and the package again"

    def _environment(self) -> str:
        names = sorted(name for name, value in os.environ.items() if value and _VARIABLES.fullmatch(name))
        where = f"{self._project.project}/{self._logstore} at {', '.join(self._project.endpoint_names)}"
        return f"{where}; variables: {', '.join(names) or 'none'}"

    def _credentials(self) -> str:
        provider = self._project.credentials

        def ask() -> str:
            try:
                found = provider.get_credentials()
            except Exception as error:  # user code
                raise StepError(f"{type(provider).__name__}: {error}") from error
            self._secrets += [found.access_key_secret, found.security_token]
            return "temporary, with a security token" if found.security_token else "a key without a security token"

        return in_time(ask, self._timeout, "doctor-credentials")

    def _ask(self) -> str:
        with self._producer() as producer:
            try:
                return self._checked(producer)
            except TargetError as error:
                if error.problem != "clock":
                    raise
                return self._checked(producer)  # it has learned the server's time

    def _checked(self, producer: Producer) -> str:
        return producer.check(self._project.project, self._logstore, timeout=self._timeout)

    def _producer(self) -> Producer:
        producer = Producer(self._project, config=self._config)
        producer._losses.mute()
        return producer

    def _loghub(self) -> LogHub:
        return LogHub(self._settings, self._timeout)

    def _list(self) -> str:
        if self._args.write_only:
            raise NotNeededError("--write-only")
        with self._loghub() as loghub:
            try:
                first = next(iter(loghub.logstores()), None)
            except LogHubReadError as error:
                if CREATED_BY_A_WRITE in str(error):
                    raise NotNeededError("the project does not exist yet: a write creates it") from error
                raise StepError(f"{error}; {_TO_LIST}") from error
        return "the key may list logstores" + ("" if first else "; the project has none")

    def _write(self) -> str:
        if self._args.no_write:
            raise NotNeededError("--no-write")
        if not self._args.write_only:
            self._cursors = self._ends()
        began = time.monotonic()
        with self._producer() as producer:
            stream = producer.stream(self._project.project, self._logstore, topic="producer-doctor")
            try:
                stream.send_and_wait({"message": "written by producer doctor", "doctor_id": self._id})
            except ResultFailedError as error:
                advice = "writing needs log:PostLogStoreLogs for this logstore"
                raise StepError(f"{error.result.error_code}: {error.result.error_message}; {advice}") from error
        return f"a log of topic producer-doctor is stored, in {(time.monotonic() - began) * 1000:.0f} ms"

    def _ends(self) -> dict[str, str]:
        """Return the end cursors of the shards; none if they cannot be read, which the next step reports."""
        try:
            with self._loghub() as loghub:
                return {shard: loghub.reader.cursor(shard, "end") for shard in loghub.reader.shards()}
        except LogHubReadError:
            return {}

    def _read(self) -> str:
        if self._args.write_only:
            raise NotNeededError("--write-only")
        try:
            return self._read_back()
        except LogHubReadError as error:
            raise StepError(f"{error}; {_TO_READ}") from error

    def _read_back(self) -> str:
        with self._loghub() as loghub:
            shards = loghub.reader.shards()
            # A write has created the logstore: it holds nothing else.
            cursors = self._cursors or {shard: loghub.reader.cursor(shard, "begin") for shard in shards}
            if self._args.no_write:
                return f"the key may read {counted(len(shards), 'shard')}"
            began = time.monotonic()
            while not self._is_found(loghub, cursors):
                if time.monotonic() - began > self._timeout:
                    raise StepError(f"the log written before is not there after {self._timeout:g} s: run it again")
                time.sleep(_PAUSE)
        return "the log written before is read back"

    def _is_found(self, loghub: LogHub, cursors: dict[str, str]) -> bool:
        """Read each shard on by one page; return True if the log is there."""
        for shard, cursor in cursors.items():
            page = loghub.pull(shard, cursor)
            cursors[shard] = page.cursor
            if any(log.get("doctor_id") == self._id for log in page.content):
                return True
        return False


def _requirements() -> list[str]:
    """Return the names of the libraries that the package always needs."""
    try:
        wanted = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # a source tree
        return []
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted if ";" not in line]
