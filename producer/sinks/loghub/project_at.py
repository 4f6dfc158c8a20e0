"""ProjectAt: signs the requests to one endpoint of a project, and adapts to refusals.

Source: LogHub protocol, Signatures, Error codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from urllib.parse import unquote

from ...model.config import ProducerConfig, ProjectConfig
from ...model.credentials import Credentials
from ...model.errors import AttemptError, ClockSkewError, RejectedError, UnauthorizedError
from ...runtime.clock import Clock
from ...runtime.loggers import get_logger
from ...wire.prepared import Prepared
from ...wire.signing import SigningKey, UnsignedRequest, sign_v1, sign_v4
from ..http.ca_bundle import check_authorities
from ..http.proxies import through
from ..http.server_time import clock_offset
from ..http.transport import Answer, Target, Transport, target_of
from .classify import error_of_answer
from .credentials.cache import CredentialsCache

_log = get_logger("loghub.loghub")


@dataclass(slots=True, repr=False)  # proxies may hold a password
class ProjectAt:
    """The state of a project at one endpoint; replaced as a whole when its configuration is.

    :ivar config: the project, with one endpoint.
    :ivar options: the options of signatures and of HTTP.
    """

    config: ProjectConfig
    options: ProducerConfig
    target: Target
    credentials: CredentialsCache
    proxies: Mapping[str, str]
    clock: Clock
    clock_offset: float = 0.0
    #: Prepared requests, and the credentials that sign them, by logstore and shard hash.
    prepared: dict[tuple[str, str | None], tuple[Credentials, Prepared]] = field(default_factory=dict)

    @property
    def user_agent(self) -> str:
        """The ``User-Agent`` header."""
        return self.config.user_agent or self.options.http.user_agent

    @property
    def region(self) -> str | None:
        """The region of signatures of version 4."""
        return self.config.region or self.options.region

    def signing_key(self, credentials: Credentials) -> SigningKey:
        """Return the key that signs with these credentials."""
        return SigningKey(
            access_key_id=credentials.access_key_id,
            access_key_secret=credentials.access_key_secret,
            security_token=credentials.security_token,
            region=self.region,
        )

    def exchange(
        self, request: UnsignedRequest, transport: Transport, patience: float = math.inf
    ) -> tuple[Answer, Mapping[str, str], Credentials]:
        """Sign and send a request, whose path is percent-encoded.

        :param patience: a limit on the endpoint's silence, seconds.
        :returns: the answer, its headers, and the credentials that signed.
        """
        credentials = self.credentials.get()
        answer, answer_headers = transport.request(
            request.method,
            self.target.base_url,
            request.path,
            request.params,
            self._signed(credentials, replace(request, path=unquote(request.path))),
            request.body,
            self.proxies,
            patience=patience,
        )
        return answer, answer_headers, credentials

    def _signed(self, credentials: Credentials, unsigned: UnsignedRequest) -> dict[str, str]:
        key = self.signing_key(credentials)
        now = datetime.fromtimestamp(self.clock.time() + self.clock_offset, UTC)
        return sign_v4(unsigned, key, now) if self.options.sign_version == "v4" else sign_v1(unsigned, key, now)

    def learn(self, credentials: Credentials, answer: Answer, headers: Mapping[str, str]) -> AttemptError:
        """Return the error of ``answer``; note refused credentials and the server's time first."""
        error = error_of_answer(answer, headers, through(self.target.base_url, self.proxies))
        if isinstance(error, UnauthorizedError):
            self.credentials.refused(credentials)
        elif isinstance(error, ClockSkewError):
            return self._learn_time(error, headers.get("Date"))
        return error

    def _learn_time(self, error: ClockSkewError, date: str | None) -> AttemptError:
        offset = clock_offset(date, self.clock.time())
        if offset is None:
            reason = f"its Date is invalid: {date!r}" if date else "the answer has no Date"
            return RejectedError(
                error.code,
                f"{error.message} (the server's time is unknown: {reason}; set this machine's clock)",
                http_status=error.http_status,
                request_id=error.request_id,
            )
        _log.warning(
            "%s: this machine's clock is %.0f s %s the server's: requests are corrected, logs keep this machine's "
            "time; set the clock",
            self.config.project,
            abs(offset),
            "behind" if offset > 0 else "ahead of",
        )
        self.clock_offset = offset
        return error


def at_each_endpoint(
    project: ProjectConfig,
    options: ProducerConfig,
    transport: Transport,
    clock: Clock,
    name: str,
    target: Callable[[str, str], Target] = target_of,
) -> tuple[ProjectAt, ...]:
    """Return a project at each of its endpoints, which share credentials if their configuration does.

    :param name: the prefix of thread names.
    :raises ConfigError: a proxy, or a setting of the environment for its requests, cannot be used.
    """
    caches: dict[int, CredentialsCache] = {}
    found = []
    for each in project.at_each_endpoint():
        where = target(each.project, each.endpoint)
        check_authorities(options.http, where.base_url)
        if id(each.credentials) not in caches:
            caches[id(each.credentials)] = CredentialsCache(each.credentials, clock, f"{name}-{each.project}")
        credentials, proxies = caches[id(each.credentials)], transport.proxies_for(where.base_url)
        found.append(ProjectAt(each, options, where, credentials, proxies, clock))
    return tuple(found)


def renewed(everywhere: tuple[ProjectAt, ...], name: str) -> tuple[ProjectAt, ...]:
    """Return the same projects for a forked child: with credentials that no thread of the parent refreshes."""
    caches = {
        id(each.credentials): CredentialsCache(each.config.credentials, each.clock, f"{name}-{each.config.project}")
        for each in everywhere
    }
    return tuple(replace(each, credentials=caches[id(each.credentials)]) for each in everywhere)
