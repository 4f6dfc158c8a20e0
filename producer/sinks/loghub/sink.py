"""LogHubSink: delivers batches as PutLogs requests. Each attempt is one HTTP request, signed at that moment.

Source: LogHub protocol, PutLogs, Signatures, Error codes.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Sequence

from ...model.config import ProducerConfig, ProjectConfig
from ...model.credentials import Credentials
from ...model.errors import AttemptError, InvalidArgumentError, ProjectNotConfiguredError, TargetError
from ...model.interfaces import Delivery, EndpointStats, Payload, Receipt, Record, SequenceId, Sink
from ...model.records import StreamKey
from ...runtime.clock import Clock, Deadline
from ...runtime.forks import Stage, watch_fork
from ...runtime.locks import Lock
from ...wire.list_shards import list_shards_headers, list_shards_path
from ...wire.prepared import Prepared, PreparedV1, PreparedV4
from ...wire.put_logs import put_logs_headers, put_logs_params, put_logs_path
from ...wire.signing import UnsignedRequest
from ..http.ca_bundle import check_authorities
from ..http.transport import Answer, Transport, head_of
from .classify import is_acknowledgement
from .codec import Codec
from .endpoint_choice import is_outage
from .failover import Failover
from .probe import ask_once, sentence
from .project_at import ProjectAt, at_each_endpoint, renewed

#: The header that tells an embedded LogHub which endpoint the producer uses, and why it is not the first.
ENDPOINT_HEADER = "x-producer-endpoint"
_SHOWN = 10  # the maximum number of projects in a message
_MOST_PREPARED = 1024  # the maximum number of kept requests of a project


class LogHubSink(Sink):
    """Delivers to LogHub, and keeps the projects of its producer.

    :param name: the prefix of thread names.
    :raises ConfigError: ``http.ca_bundle`` cannot be used on this machine.
    """

    def __init__(self, config: ProducerConfig, clock: Clock, name: str) -> None:
        check_authorities(config.http)
        self._config = config
        self._clock = clock
        self._name = name
        self._codec = Codec(config.log_format, config.compression, digest=config.sign_version != "v4")
        self._projects: dict[str, Failover] = {}
        self._connect()
        watch_fork(self, Stage.SINKS)

    def _connect(self) -> None:
        config = self._config
        pool_size = config.http.pool_size or config.io_thread_count
        self._transport = Transport(config.http, pool_size, self._clock, self._name)
        self._lock = Lock()  # guards changes of _projects

    def _renew_in_child(self) -> None:
        self._connect()
        self._projects = {
            name: Failover(known.config, renewed(known.everywhere, f"{self._name}-credentials"), self._name)
            for name, known in self._projects.items()
        }

    def put_project(self, project: ProjectConfig) -> None:
        """Add a project, or replace its endpoints and credentials; the next attempts use them.

        :raises ConfigError: a proxy, or a setting of the environment for its requests, cannot be used.
        """
        everywhere = at_each_endpoint(project, self._config, self._transport, self._clock, f"{self._name}-credentials")
        known = Failover(project, everywhere, self._name)
        with self._lock:
            self._projects = {**self._projects, project.project: known}

    def remove_project(self, name: str) -> None:
        with self._lock:
            left = dict(self._projects)
            left.pop(name, None)
            self._projects = left

    def project_configs(self) -> tuple[ProjectConfig, ...]:
        return tuple(known.config for known in self._projects.values())

    def check_project(self, name: str) -> None:
        if name not in self._projects:
            raise InvalidArgumentError(unknown_project(name, self._projects))

    def destination(self, key: StreamKey) -> Hashable:
        """Return the project and its endpoints: other endpoints do not wait for the outage of the old ones.

        The endpoints of a project share a destination, which pauses only if none of them answers.
        """
        known = self._projects.get(key.project)
        if known is None:
            return key.project, None
        return key.project, known.where

    def endpoints(self) -> tuple[EndpointStats, ...]:
        return tuple(known.choice.stats() for known in self._projects.values() if known.choice is not None)

    def tail_size(self, key: StreamKey, pack_id: str | None) -> int:
        return self._codec.tail_size(key, pack_id)

    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[Record]) -> Payload:
        return self._codec.encode(key, pack_id, records)

    def decode(self, payload: Payload) -> list[bytes]:
        return self._codec.decode(payload)

    def write(self, delivery: Delivery) -> Receipt:
        known = self._known(delivery.key.project)
        return known.attempt(lambda project, patience, why: self._attempt(project, delivery, patience, why))

    def _attempt(self, project: ProjectAt, delivery: Delivery, patience: float, endpoint: str) -> Receipt:
        """Make one attempt at one endpoint.

        :param patience: a limit on the endpoint's silence, seconds.
        :param endpoint: the text of the header about the endpoint; empty for none.
        """
        payload = delivery.payload
        credentials = project.credentials.get()
        request = self._prepared(project, credentials, delivery.key, delivery.sequence)
        head = request.head(payload.body, payload.raw_size, self._clock.time() + project.clock_offset, payload.md5)
        if endpoint:
            head += b"\r\n" + head_of({ENDPOINT_HEADER: endpoint})
        answer, headers = self._transport.send(
            "POST", project.target.base_url, request.target, head, payload.body, project.proxies, patience
        )
        if not is_acknowledgement(answer):
            raise project.learn(credentials, answer, headers)
        return Receipt(answer.request_id, answer.status)

    def _prepared(
        self, project: ProjectAt, credentials: Credentials, key: StreamKey, sequence: SequenceId | None
    ) -> Prepared:
        """Return the request of a batch; it is kept unless it has a sequence number, which no other batch has."""
        where = key.logstore, key.shard_hash
        known = project.prepared.get(where)
        if sequence is None and known is not None and known[0] is credentials:
            return known[1]
        config = self._config
        request = UnsignedRequest(
            method="POST",
            path=put_logs_path(key, sequence),
            params=put_logs_params(key, config.processor, sequence),
            headers=put_logs_headers(project.target.host, 0, config.compression, project.user_agent, config.log_format),
        )
        kind = PreparedV4 if config.sign_version == "v4" else PreparedV1
        prepared = kind(request, project.signing_key(credentials), head_of)
        if sequence is None:
            if len(project.prepared) >= _MOST_PREPARED:
                project.prepared.clear()
            project.prepared[where] = credentials, prepared
        return prepared

    def ask_for_shards(self, project: str, logstore: str) -> None:
        """Ask for the shards of a logstore, which changes nothing, to check that it exists and accepts the credentials.

        A key that may write need not be allowed to ask; the refusal is then ``Unauthorized``.

        :raises AttemptError: there was no answer from any endpoint, or a refusal.
        """
        *others, last = self._known(project).everywhere
        for known in others:
            try:
                return self._ask_for_shards(known, logstore)
            except AttemptError as error:
                if not is_outage(error):
                    raise
        return self._ask_for_shards(last, logstore)

    def _ask_for_shards(self, known: ProjectAt, logstore: str) -> None:
        headers = list_shards_headers(known.target.host, known.user_agent)
        self._ask(known, UnsignedRequest(method="GET", path=list_shards_path(logstore), params={}, headers=headers))

    def probe(self, project: str, logstore: str | None, timeout: float) -> str:
        """Make one request to each endpoint, over a connection of its own; return the findings.

        :raises TargetError: the findings of all endpoints, with the problem of the first faulty one.
        """
        everywhere = self._known(project).everywhere
        found: list[str] = []
        faults: list[TargetError] = []
        for known in everywhere:
            failure, user = ask_once(known, logstore, timeout / len(everywhere), self._name)
            try:
                found.append(sentence(failure, known.config, logstore, self._config, user))
            except TargetError as fault:
                found.append(str(fault))
                faults.append(fault)
        if faults:
            raise TargetError(faults[0].problem, "\n".join(found)) from faults[0].__cause__
        return "\n".join(found)

    def _known(self, name: str) -> Failover:
        known = self._projects.get(name)
        if known is None:
            raise ProjectNotConfiguredError("ProjectConfigNotExist", unknown_project(name, self._projects))
        return known

    def _ask(self, project: ProjectAt, request: UnsignedRequest) -> Answer:
        """Sign and send a request, whose path is percent-encoded; return its answer unless it is a refusal."""
        answer, headers, credentials = project.exchange(request, self._transport)
        if is_acknowledgement(answer):
            return answer
        raise project.learn(credentials, answer, headers)

    def hurry(self, deadline: Deadline) -> None:
        """Shut down the connections at the deadline."""
        self._transport.hurry(deadline)

    def close(self) -> None:
        self._transport.close()


def unknown_project(name: str, known: Iterable[str]) -> str:
    """Return the message about a project without a configuration."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names[:_SHOWN])}" if names else "it has none"
    return f"the producer has no ProjectConfig for {name!r} ({hint}): pass one, or call put_project_config"
