"""LogHubSink: batches leave as PutLogs requests. One HTTP request an attempt, signed at that moment.

Source: LogHub protocol, PutLogs, Signatures, Error codes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

from ...clock import Clock
from ...config import ProducerConfig, ProjectConfig
from ...credentials import Credentials
from ...errors import AttemptError, ClockSkewError, ProjectNotConfiguredError, RejectedError, UnauthorizedError
from ...interfaces import Delivery, Payload, Receipt, Record, Sink
from ...records import StreamKey
from ...wire.compression import compress, compress_joined, decompress
from ...wire.json_group import decode_json, encode_json
from ...wire.log_group import encode_tail, split_records
from ...wire.put_logs import put_logs_headers, put_logs_params, put_logs_path
from ...wire.signing import SigningKey, UnsignedRequest, sign_v1, sign_v4
from ..http.transport import Answer, Target, Transport, target_of
from .classify import error_of_answer, is_acknowledgement
from .credentials_cache import CredentialsCache

_log = logging.getLogger("producer.loghub")

# A Date further away than ten years is nonsense, seconds.
_LARGEST_OFFSET = 10 * 366 * 86_400.0

PACK_ID_TAG = "__pack_id__"


@dataclass(slots=True, repr=False)  # proxies may hold a password
class _Project:
    """What the sink knows of a project; replaced as a whole when its configuration is."""

    config: ProjectConfig
    target: Target
    credentials: CredentialsCache
    proxies: Mapping[str, str]
    user_agent: str
    clock_offset: float = 0.0


class LogHubSink(Sink):
    """See the module.

    :param name: prefix of thread names.
    """

    def __init__(self, config: ProducerConfig, clock: Clock, name: str) -> None:
        self._config = config
        self._clock = clock
        self._name = name
        self._transport = Transport(config.http, config.http.pool_size or config.io_thread_count, clock, name)
        self._lock = threading.Lock()  # guards changes of _projects
        self._projects: dict[str, _Project] = {}

    def put_project(self, config: ProjectConfig) -> None:
        """Add a project, or replace its endpoint and credentials; the next attempts use them."""
        target = target_of(config.project, config.endpoint)
        project = _Project(
            config=config,
            target=target,
            credentials=CredentialsCache(config.credentials, self._clock, f"{self._name}-credentials-{config.project}"),
            proxies=self._transport.proxies_for(target.base_url),
            user_agent=config.user_agent or self._config.http.user_agent,
        )
        with self._lock:
            self._projects = {**self._projects, config.project: project}

    def remove_project(self, name: str) -> None:
        """Forget a project; its records fail from now on."""
        with self._lock:
            self._projects = {known: project for known, project in self._projects.items() if known != name}

    def project_configs(self) -> tuple[ProjectConfig, ...]:
        """The configurations of all projects."""
        return tuple(project.config for project in self._projects.values())

    def destination(self, key: StreamKey) -> Hashable:
        """The project and its endpoint: one that gets another endpoint is not held back for the old one's sake."""
        project = self._projects.get(key.project)
        return key.project, None if project is None else project.config.endpoint

    def tail_size(self, key: StreamKey, pack_id: str | None) -> int:
        """See :class:`~producer.interfaces.Sink`."""
        return len(_tail(key, pack_id))

    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[Record]) -> Payload:
        """See :class:`~producer.interfaces.Sink`."""
        if self._config.log_format == "json":
            text = encode_json([bytes(record) for record in records], key.topic, key.source, _tags(key, pack_id))
            return Payload(compress(text, self._config.compression), len(text))
        parts = (*records, _tail(key, pack_id))
        return Payload(compress_joined(parts, self._config.compression), sum(map(len, parts)))

    def decode(self, payload: Payload) -> list[bytes]:
        """See :class:`~producer.interfaces.Sink`."""
        raw = decompress(payload.body, self._config.compression, payload.raw_size)
        return decode_json(raw) if self._config.log_format == "json" else list(split_records(raw))

    def write(self, delivery: Delivery) -> Receipt:
        """See :class:`~producer.interfaces.Sink`."""
        key = delivery.key
        project = self._projects.get(key.project)
        if project is None:
            message = f"the producer has no ProjectConfig for {key.project!r}: pass one, or call put_project_config"
            raise ProjectNotConfiguredError("ProjectConfigNotExist", message)
        credentials = project.credentials.get()
        path = put_logs_path(key, delivery.sequence)
        params = put_logs_params(key, self._config.processor, delivery.sequence)
        headers = self._sign(project, credentials, path, params, delivery.payload)
        answer, answer_headers = self._transport.post(
            project.target.base_url + path, params, headers, delivery.payload.body, project.proxies
        )
        if is_acknowledgement(answer):
            return Receipt(answer.request_id, answer.status)
        raise self._learn(project, credentials, answer, answer_headers)

    def _sign(
        self, project: _Project, credentials: Credentials, path: str, params: Mapping[str, str], payload: Payload
    ) -> dict[str, str]:
        unsigned = UnsignedRequest(
            method="POST",
            path=unquote(path),
            params=params,
            headers=put_logs_headers(
                project.target.host,
                payload.raw_size,
                self._config.compression,
                project.user_agent,
                self._config.log_format,
            ),
            body=payload.body,
        )
        key = SigningKey(
            access_key_id=credentials.access_key_id,
            access_key_secret=credentials.access_key_secret,
            security_token=credentials.security_token,
            region=self._config.region,
        )
        now = datetime.fromtimestamp(self._clock.time() + project.clock_offset, UTC)
        return sign_v4(unsigned, key, now) if self._config.sign_version == "v4" else sign_v1(unsigned, key, now)

    def _learn(
        self, project: _Project, credentials: Credentials, answer: Answer, headers: Mapping[str, str]
    ) -> AttemptError:
        """The error of ``answer``, after what it teaches was noted: refused credentials, the server's time."""
        error = error_of_answer(answer)
        if isinstance(error, UnauthorizedError):
            project.credentials.refused(credentials)
        elif isinstance(error, ClockSkewError):
            offset = _offset(headers.get("Date"), self._clock.time())
            if offset is None:
                return RejectedError(
                    error.code,
                    f"{error.message} (and the answer has no Date to learn the server's time from)",
                    http_status=error.http_status,
                    request_id=error.request_id,
                )
            _log.warning("%s: the server's clock differs by %.0f s; taken into account", project.config.project, offset)
            project.clock_offset = offset
        return error

    def close(self) -> None:
        """See :class:`~producer.interfaces.Sink`."""
        self._transport.close()


def _tags(key: StreamKey, pack_id: str | None) -> tuple[tuple[str, str], ...]:
    return key.tags if pack_id is None else (*key.tags, (PACK_ID_TAG, pack_id))


def _tail(key: StreamKey, pack_id: str | None) -> bytes:
    return encode_tail(key.topic, key.source, _tags(key, pack_id))


def _offset(date: str | None, now: float) -> float | None:
    if date is None:
        return None
    try:
        offset = parsedate_to_datetime(date).timestamp() - now
    except (ValueError, OverflowError, TypeError, OSError):
        return None
    return offset if abs(offset) < _LARGEST_OFFSET else None
