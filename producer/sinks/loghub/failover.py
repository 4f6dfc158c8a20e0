"""Failover: makes the attempts of a project at the endpoint in use, and probes the others.

Writers and readers share it. :mod:`.endpoint_choice` has the rules.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TypeVar

from ...model.config import ProjectConfig
from ...model.errors import (
    AttemptError,
    CredentialsError,
    MisconfiguredError,
    NetworkError,
    UnauthorizedError,
    UnreachableError,
)
from ...runtime.internal_threads import at_work
from .endpoint_choice import EndpointChoice, is_outage
from .probe import ask_once
from .project_at import ProjectAt

_T = TypeVar("_T")

#: Refusals that count as an outage if another project refuses: the records go to the next endpoint instead.
_UNUSABLE = UnauthorizedError, MisconfiguredError, CredentialsError
_PROBE_SECONDS = 5.0  # the limit of a probe


class Failover:
    """A project at each of its endpoints. Thread-safe.

    :param name: the prefix of thread names.
    :ivar config: the configuration; that of each :class:`ProjectAt` has one endpoint.
    :ivar everywhere: the project at each endpoint, and other projects, the preferred first.
    :ivar where: the endpoints in words.
    :ivar choice: chooses the endpoint of each attempt; None for a single endpoint.
    """

    def __init__(self, config: ProjectConfig, everywhere: tuple[ProjectAt, ...], name: str) -> None:
        self.config, self.everywhere, self._name = config, everywhere, name
        self.where = ", ".join(config.endpoint_names)
        self._clock = everywhere[0].clock
        self.choice: EndpointChoice | None = None
        if len(everywhere) > 1:
            others = [name for name in config.endpoint_names if name not in config.endpoints]
            patience = everywhere[0].options.failover_ms / 1000
            self.choice = EndpointChoice(config.project, config.endpoint_names, patience, others=others)

    @property
    def current(self) -> ProjectAt:
        """The project at the endpoint of the next attempt."""
        return self.everywhere[0 if self.choice is None else self.choice.current]

    def attempt(self, work: Callable[[ProjectAt, float, str], _T]) -> _T:
        """Make one attempt at the endpoint in use, and return its result.

        :param work: the attempt. It gets the project at the endpoint, a limit on the endpoint's silence in seconds,
            and the reason for not using the first endpoint.
        :raises AttemptError: it failed.
        """
        choice = self.choice
        if choice is None:
            return work(self.everywhere[0], math.inf, "")
        began = self._clock.monotonic()
        self._probe_if_due(choice, began)
        index = choice.current
        try:
            result = work(self.everywhere[index], choice.limit, choice.header)
        except AttemptError as error:
            unusable = isinstance(error, _UNUSABLE) and not isinstance(self.config.endpoints[index], str)
            if not is_outage(error) and not unusable:
                choice.answered(index)
                raise
            elsewhere = choice.failed(index, error, began, self._clock.monotonic())
            if not unusable and not (elsewhere and isinstance(error, UnreachableError)):
                raise
            # Retry at another endpoint: no permanent error, and none that pauses the destination.
            raise NetworkError(error.code, error.message, http_status=error.http_status) from error
        choice.answered(index)
        return result

    def _probe_if_due(self, choice: EndpointChoice, now: float) -> None:
        index = choice.take_probe(now)
        if index is None:
            return
        name = f"{self._name}-probe-{self.config.project}"
        try:
            threading.Thread(target=self._probe, args=(choice, index), name=name, daemon=True).start()
        except RuntimeError as error:  # the interpreter is exiting, or there are too many threads
            choice.probed(index, NetworkError("RequestError", f"no thread for a probe: {error}"), now)

    def _probe(self, choice: EndpointChoice, index: int) -> None:
        failure: AttemptError | None = NetworkError("RequestError", "the probe raised an error")
        try:
            with at_work():
                limit = min(choice.limit, _PROBE_SECONDS)
                failure, _ = ask_once(self.everywhere[index], None, limit, self._name, warns=False)
        finally:
            choice.probed(index, failure, self._clock.monotonic())
