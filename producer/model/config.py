"""Configuration: frozen, keyword-only, checked once at construction.

Names and defaults are those of the Aliyun Java producer in snake_case. Every option is a dataclass field with its rule;
its meaning is in the class's docstring. The documentation's table and ``help`` are generated from both. The file is
long because every option, its default and its rule are in one place.
"""

from __future__ import annotations

import dataclasses
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast
from urllib.parse import urlsplit

from ..text.migration_hints import FOREIGN, FOREIGN_OF_PROJECT
from ..text.names import PROJECT_RULE, is_project_name
from .credentials import Credentials, StaticCredentials, is_header_text, split_name
from .errors import ConfigError
from .options import Option, check_all, option, options_of, unknown

if TYPE_CHECKING:
    from tenacity import RetryCallState
    from tenacity.retry import retry_base
    from tenacity.stop import stop_base
    from tenacity.wait import wait_base

MIB = 1024 * 1024
#: A batch never grows larger than this on the wire, before compression, bytes.
MAX_BATCH_SIZE_IN_BYTES = 8 * MIB
#: A batch never holds more logs than this.
MAX_BATCH_COUNT = 40_960
T = TypeVar("T")

_HEADER_TEXT = "printable ASCII text, not empty, without spaces at its ends"


def _document_rules(config: type[T]) -> type[T]:
    """Add each option's rule and default to the class's docstring, for ``help``."""
    for name, each in options_of(config).items():
        rule = f":ivar {name}: {each.words()}, by default {default_of(each)}."
        config.__doc__ = (config.__doc__ or "").replace(f":ivar {name}: ", f"{rule}\n        ")
    return config


def default_of(each: Option) -> str:
    """Return an option's default as the documentation shows it."""
    if each.name == "io_thread_count":
        return "the number of CPUs"
    return f"{type(each.default).__name__}()" if dataclasses.is_dataclass(each.default) else repr(each.default)


class _Options:
    """Base that reports a wrong name with the same error as a wrong value."""

    __slots__ = ()

    def __new__(cls, *given: Any, **options: Any) -> Self:
        known = [item.name for item in fields(cast("Any", cls))]
        if given:
            rule = f"takes options by name, such as {cls.__name__}({known[0]}=...); from_mapping takes a mapping"
            raise ConfigError(cls.__name__, rule, type(given[0]).__qualname__)
        for name in options:
            if name not in known:
                raise unknown(name, producer_options() if "http" in known else known, FOREIGN)
        return super().__new__(cls)


@_document_rules
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig(_Options):
    """Options of HTTP requests.

    :ivar connect_timeout_ms: limit on connecting, milliseconds; the addresses of a host share it.
    :ivar read_timeout_ms: how long the server may be silent, milliseconds.
    :ivar attempt_timeout_ms: limit on an attempt, from looking for a connection to the last byte of the answer,
        milliseconds; None is ``connect_timeout_ms`` and ``read_timeout_ms`` together, or ten minutes for reading logs.
    :ivar proxies: proxy URLs by scheme, such as ``{"https": "http://proxy:3128"}``. None takes ``HTTP_PROXY``,
        ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` from the environment, read once; ``{}`` uses no proxy. An entry
        of ``NO_PROXY`` is ``*``, a name (also of all below it), an address, or a network such as ``10.0.0.0/8``; with
        ``:port`` it holds for that port.
    :ivar verify: verify TLS certificates. Without it anybody on the path can read and change your logs.
    :ivar ca_bundle: a PEM file (or folder) of certificate authorities; None takes ``REQUESTS_CA_BUNDLE`` or
        ``CURL_CA_BUNDLE`` from the environment if set, else the bundle of certifi. It is checked when the producer is
        made (the environment's only for an https endpoint).
    :ivar pool_size: connections kept open for each host; None is one for each IO thread.
    :ivar user_agent: the ``User-Agent`` header.
    """

    connect_timeout_ms: int = option(10_000, least=1, unit="milliseconds")
    read_timeout_ms: int = option(60_000, least=1, unit="milliseconds")
    attempt_timeout_ms: int | None = option(None, least=1, unit="milliseconds")
    proxies: Mapping[str, str] | None = option(None, secret=True)
    verify: bool = option(True)
    ca_bundle: str | None = option(None, least=1)
    pool_size: int | None = option(None, least=1, most=10_000)
    user_agent: str = option("loghub-producer-python", least=1)

    def __post_init__(self) -> None:
        check_all(self, "http.")
        if not is_header_text(self.user_agent):
            raise ConfigError("http.user_agent", f"must be {_HEADER_TEXT}", self.user_agent)
        if self.proxies is not None:  # a copy: the caller may change its mapping
            object.__setattr__(self, "proxies", dict(self.proxies))

    def __repr__(self) -> str:
        # A proxy's URL may contain a password.
        proxies = None if self.proxies is None else dict.fromkeys(self.proxies, "***")
        shown = [(f.name, proxies if f.name == "proxies" else getattr(self, f.name)) for f in fields(self)]
        return f"HttpConfig({', '.join(f'{name}={value!r}' for name, value in shown)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Retry strategies of tenacity, each replacing a built-in rule.

    Each is called with a ``tenacity.RetryCallState`` whose ``outcome`` holds the
    :class:`~producer.model.errors.AttemptError` and whose ``attempt_number`` counts the attempts of the batch.

    :ivar wait: seconds until the next attempt; None is exponential backoff with jitter between
        ``base_retry_backoff_ms`` and ``max_retry_backoff_ms``.
    :ivar stop: True fails the batch; None stops after ``retries`` retries, and never with a durable channel.
    :ivar retry: True tries again; None follows the class of the error.
    """

    wait: wait_base | Callable[[RetryCallState], float] | None = None
    stop: stop_base | Callable[[RetryCallState], bool] | None = None
    retry: retry_base | Callable[[RetryCallState], bool] | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and not callable(value):
                raise ConfigError(
                    f"retry_policy.{item.name}", "must be None or a tenacity strategy (a callable)", value
                )


@_document_rules
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(_Options):
    """The options of a :class:`~producer.Producer`.

    :ivar total_size_in_bytes: limit on the memory of all records accepted and not yet completed, bytes, including the
        fixed overheads of a record and a batch.
    :ivar max_block_ms: how long ``send`` waits for memory, milliseconds; 0 fails at once, negative waits forever.
    :ivar io_thread_count: number of threads that send requests.
    :ivar max_concurrency_per_destination: at most this many requests to one project at the same time; None is
        ``io_thread_count``. With a smaller number, threads stay free for other projects even when one hangs.
    :ivar adaptive_concurrency: lower that number while a destination refuses, does not answer, or answers more slowly
        than it could, and raise it again.
    :ivar batch_size_threshold_in_bytes: a batch of this size is sent, bytes on the wire before compression.
    :ivar batch_count_threshold: a batch of this many logs is sent.
    :ivar linger_ms: a batch is sent this long after its first record, milliseconds. To send several batches together,
        it may be sent earlier, by at most a tenth of this time and at most 10 ms. A producer's very first batch is sent
        after half a second at most, so that a wrong endpoint shows at once.
    :ivar retries: attempts after the first one; 0 or less is none. For no limit use
        ``RetryPolicy(stop=tenacity.stop_never)``. Not used with a durable channel: there retries continue until one
        succeeds, or for ``delivery_timeout_ms``.
    :ivar max_reserved_attempts: number of attempts kept in a :class:`~producer.Result`; the oldest are dropped.
    :ivar base_retry_backoff_ms: the first backoff, milliseconds.
    :ivar max_retry_backoff_ms: the longest backoff, milliseconds.
    :ivar delivery_timeout_ms: how long after its first attempt a batch is retried, milliseconds; 0 is no limit.
        With a channel nothing else ends the retries; without one it may end them before ``retries`` does.
    :ivar quota_timeout_ms: how long after its first attempt a batch refused for a quota is retried, milliseconds;
        ``retries`` then counts only other failures after such a refusal. 0: quota errors also consume ``retries``.
    :ivar adjust_shard_hash: round a shard hash down to one of ``buckets`` ranges, so that batches can form.
    :ivar buckets: number of those ranges.
    :ivar log_format: format of request bodies; json is larger and slower.
    :ivar compression: compression of request bodies.
    :ivar sign_version: signature version; v4 needs ``region``.
    :ivar region: region for sign_version v4, such as ``cn-hangzhou``.
    :ivar source: the LogGroup's source if ``send`` gives none; None is this host's address.
    :ivar log_tags: tags added to every LogGroup.
    :ivar generate_pack_id: add the ``__pack_id__`` tag, by which the service finds a log's neighbours.
    :ivar default: as for ``json.dumps``: called with a value that cannot be sent; returns one that can be sent, or
        raises. For Spark it must be picklable.
    :ivar on_unencodable: treatment of a value or a name that still cannot be sent: ``raise`` refuses the log,
        ``repr`` sends its ``repr`` instead.
    :ivar processor: name of an ingest processor of the service; None is none.
    :ivar failover_ms: with several endpoints of a project: how long the one in use may fail or be silent before the
        next one is used, milliseconds; three failures one after another also suffice.
    :ivar drain_timeout_ms: how long the exit of the interpreter waits for deliveries, and ``close`` without a timeout
        for the next acknowledgement, milliseconds; retries take half of it. 0: the exit does not wait, and ``close``
        retries nothing.
    :ivar http: options of HTTP requests.
    :ivar retry_policy: retry strategies that replace the built-in rules.
    :ivar stats_interval_ms: interval of logging ``stats()``, as one line of JSON (logger ``loghub.stats``,
        level INFO), milliseconds; 0 is never.
    :ivar name: prefix of thread names; None is ``producer-N``.
    """

    total_size_in_bytes: int = option(100 * MIB, least=1, unit="bytes")
    max_block_ms: int = option(60_000, unit="milliseconds")
    io_thread_count: int = option(least=1, factory=lambda: max(1, os.cpu_count() or 1))
    max_concurrency_per_destination: int | None = option(None, least=1, most=10_000)
    adaptive_concurrency: bool = option(True)
    batch_size_threshold_in_bytes: int = option(512 * 1024, least=1, most=MAX_BATCH_SIZE_IN_BYTES, unit="bytes")
    batch_count_threshold: int = option(4096, least=1, most=MAX_BATCH_COUNT, unit="logs")
    linger_ms: int = option(2000, least=1, unit="milliseconds")
    retries: int = option(10)
    max_reserved_attempts: int = option(11, least=1)
    base_retry_backoff_ms: int = option(100, least=1, unit="milliseconds")
    max_retry_backoff_ms: int = option(50_000, least=1, unit="milliseconds")
    delivery_timeout_ms: int = option(0, least=0, unit="milliseconds")
    quota_timeout_ms: int = option(0, least=0, unit="milliseconds")
    adjust_shard_hash: bool = option(True)
    buckets: int = option(64, choices=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512))
    log_format: Literal["protobuf", "json"] = option("protobuf")
    compression: Literal["lz4", "zstd", "deflate", "none"] = option("lz4")
    sign_version: Literal["v1", "v4"] = option("v1")
    region: str | None = option(None, least=1)
    source: str | None = option(None)
    log_tags: Mapping[str, str] = option(factory=dict)
    generate_pack_id: bool = option(True)
    default: Callable[[Any], Any] | None = option(None)
    on_unencodable: Literal["raise", "repr"] = option("raise")
    processor: str | None = option(None, least=1)
    failover_ms: int = option(10_000, least=1, unit="milliseconds")
    drain_timeout_ms: int = option(10_000, least=0, unit="milliseconds")
    http: HttpConfig = option(factory=HttpConfig)
    retry_policy: RetryPolicy = option(factory=RetryPolicy)
    stats_interval_ms: int = option(0, least=0, unit="milliseconds")
    name: str | None = option(None, least=1)

    def __post_init__(self) -> None:
        check_all(self)
        if self.sign_version == "v4" and not self.region:
            raise ConfigError("region", "must be given with sign_version='v4', such as 'cn-hangzhou'", self.region)
        # A copy: the caller may change its mapping.
        object.__setattr__(self, "log_tags", dict(self.log_tags))

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> Self:
        """Build a configuration from a mapping, whose values may be text (as in ``spark-defaults`` or an ``.ini``
        file).

        Options of :class:`HttpConfig` are written ``http.verify`` or ``http_verify``.

        :raises ConfigError: an unknown name, text that cannot be parsed, or a value out of range.
        """
        own: dict[str, Any] = {}
        http: dict[str, Any] = {}
        known = producer_options()
        for name, value in options.items():
            dotted = "http." + name[5:] if name.startswith("http_") else name
            if dotted not in known:
                raise unknown(name, known, FOREIGN)
            is_text = isinstance(value, str) and value != ""  # the constructor checks which options may be empty
            parsed = known[dotted].check(value, name=name, text=True) if is_text else value
            if dotted.startswith("http."):
                http[dotted[5:]] = parsed
            else:
                own[dotted] = parsed
        if http:
            base = own.get("http", HttpConfig())
            own["http"] = dataclasses.replace(base, **http)
        return cls(**own)

    @classmethod
    def from_env(cls, prefix: str = "LOGHUB_PRODUCER_", environ: Mapping[str, str] | None = None) -> Self:
        """Build a configuration from environment variables: ``LOGHUB_PRODUCER_LINGER_MS=500``.

        :param prefix: the prefix of the variables; the rest of a name is an option in capitals.
        :param environ: the variables; None for ``os.environ``.
        :raises ConfigError: as :meth:`from_mapping`; a variable with the prefix that names no option is an error.
        """
        variables = os.environ if environ is None else environ
        found = {name[len(prefix) :].lower(): value for name, value in variables.items() if name.startswith(prefix)}
        try:
            return cls.from_mapping(found)
        except ConfigError as error:
            variable = prefix + error.name.upper().replace(".", "_")
            value = variable if error.value is error.name else error.value
            raise ConfigError(variable, error.rule, value) from error


def producer_options() -> dict[str, Option]:
    """Return every option by name, those of :class:`HttpConfig` as ``http.verify``."""
    return {**options_of(ProducerConfig), **{f"http.{name}": each for name, each in options_of(HttpConfig).items()}}


_OF_PROJECT = (
    "project",
    "endpoint",
    "endpoints",
    "access_key_id",
    "access_key_secret",
    "security_token",
    "credentials",
    "user_agent",
    "region",
)


class _ProjectOptions:
    """Base that checks the names; the project may be given by position."""

    __slots__ = ()

    def __new__(cls, *given: Any, **options: Any) -> Self:
        if len(given) > 1:
            rule = (
                "takes the project, and all else by name: ProjectConfig(project, endpoint=..., access_key_id=..., ...)"
            )
            if isinstance(given[1], Mapping):
                rule = "takes the project, and all else by name: ProjectConfig(project, **connection)"
            raise ConfigError("ProjectConfig", rule, f"{len(given)} arguments without a name")
        for name in options:
            if name in ProducerConfig.__dataclass_fields__ and name not in _OF_PROJECT:
                rule = f"is an option of the producer: Producer(project, config=ProducerConfig({name}=...))"
                raise ConfigError(name, rule, name)
            if name not in _OF_PROJECT:
                raise unknown(name, _OF_PROJECT, FOREIGN_OF_PROJECT)
        if (given or options) and not {"endpoint", "endpoints"} & options.keys():
            rule = "must be given, such as endpoint='https://cn-hangzhou.log.aliyuncs.com'"
            raise ConfigError("endpoint", rule, "endpoint")
        return super().__new__(cls)


@dataclass(frozen=True, slots=True)
class ProjectConfig(_ProjectOptions):
    """The endpoint or endpoints, and the credentials, of one project.

    Give either a static key (``access_key_id`` and ``access_key_secret``, with ``security_token`` for STS), or
    ``credentials``: an object with ``get_credentials() -> Credentials``, or the name of a source such as
    ``"ecs-ram-role"``.

    :ivar project: the project's name.
    :ivar endpoint: such as ``https://cn-hangzhou.log.aliyuncs.com``; https if no scheme is given. Several, separated by
        commas, are the same as ``endpoints``; the attribute is then the first one.
    :ivar endpoints: several endpoints of the project, in place of ``endpoint``: the first one that answers is used.
        Empty with one endpoint. After the first, a :class:`ProjectConfig` is an endpoint of another project, as in
        another region, with its own credentials; the logstores have the same names there. Writes use it, reads do not.
        Within a project idempotent streams stay exactly once. Across projects delivery is at least once: a batch that
        may be stored in one project may be stored in the next one, too.
    :ivar credentials: the provider or the name; made from the static key if that is given.
    :ivar user_agent: the ``User-Agent`` header for this project; None is that of :class:`HttpConfig`.
    :ivar region: the region for ``sign_version`` v4; None is that of :class:`ProducerConfig`.
    """

    project: str
    endpoint: str = field(default="", kw_only=True)
    endpoints: Sequence[str | ProjectConfig] = field(default=(), kw_only=True)
    access_key_id: InitVar[str | None] = field(default=None, kw_only=True)
    access_key_secret: InitVar[str | None] = field(default=None, kw_only=True)
    security_token: InitVar[str | None] = field(default=None, kw_only=True)
    credentials: Any = field(default=None, kw_only=True)
    user_agent: str | None = field(default=None, kw_only=True)
    region: str | None = field(default=None, kw_only=True)

    def __post_init__(
        self, access_key_id: str | None, access_key_secret: str | None, security_token: str | None
    ) -> None:
        if not is_project_name(self.project):
            raise ConfigError("project", PROJECT_RULE, self.project)
        first, endpoints = _endpoints_of(self.project, self.endpoint, self.endpoints)
        object.__setattr__(self, "endpoint", first)
        object.__setattr__(self, "endpoints", endpoints if len(endpoints) > 1 else ())
        _check_text("user_agent", self.user_agent)
        _check_text("region", self.region)
        static = access_key_id is not None or access_key_secret is not None
        if static == (self.credentials is not None):
            rule = (
                "give either access_key_id and access_key_secret, or credentials, such as 'environment', which reads "
                f"LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET; project {self.project} has "
                f"{'both' if static else 'neither'}"
            )
            raise ConfigError("credentials", rule, "both" if static else "credentials")
        if static:
            for name, value in (("access_key_id", access_key_id), ("access_key_secret", access_key_secret)):
                if value is None:
                    raise ConfigError(name, "is missing: an access key is an id and a secret, give both", name)
            key = Credentials(
                access_key_id=cast("str", access_key_id),
                access_key_secret=cast("str", access_key_secret),
                security_token=security_token,
            )
            object.__setattr__(self, "credentials", StaticCredentials(credentials=key))
        elif isinstance(self.credentials, str):
            split_name(self.credentials)
        elif isinstance(self.credentials, type):
            name = self.credentials.__qualname__
            raise ConfigError("credentials", f"must be {name}(), an object, and not its class", self.credentials)
        elif not any(callable(getattr(self.credentials, name, None)) for name in _METHODS):
            raise ConfigError(
                "credentials", "must have a method get_credentials()", type(self.credentials).__qualname__
            )

    def at_each_endpoint(self) -> list[ProjectConfig]:
        """Return the project with one endpoint, for each of its endpoints, and other projects as they are."""
        return [
            each if isinstance(each, ProjectConfig) else dataclasses.replace(self, endpoint=each, endpoints=())
            for each in self.endpoints
        ] or [self]

    def alone(self) -> ProjectConfig:
        """Return the project without the endpoints of other projects."""
        return dataclasses.replace(self, endpoints=[each for each in self.endpoints if isinstance(each, str)])

    @property
    def endpoint_names(self) -> tuple[str, ...]:
        """Its endpoints in words, at least one; those of other projects as ``PROJECT at ENDPOINT``."""
        return _names_of(self.endpoints) or (self.endpoint,)

    def __repr__(self) -> str:
        # Not the provider's own repr, which may show secrets.
        given = self.credentials
        shown = repr(given) if isinstance(given, str) else f"<{type(given).__qualname__}>"
        where = f"endpoints={list(self.endpoints)!r}" if self.endpoints else f"endpoint={self.endpoint!r}"
        return f"ProjectConfig({self.project!r}, {where}, credentials={shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        rest = self.credentials, self.user_agent, self.endpoints, self.region
        return _rebuild_project, (self.project, self.endpoint, *rest)


#: The method of a provider, and the one of a client of the package alibabacloud-credentials.
_METHODS = "get_credentials", "get_credential"


def _check_text(name: str, value: object) -> None:
    if value is not None and not is_header_text(value):
        raise ConfigError(name, f"must be None or {_HEADER_TEXT}", value)


def _rebuild_project(
    project: str,
    endpoint: str,
    credentials: Any,
    user_agent: str | None,
    endpoints: Sequence[str | ProjectConfig] = (),
    region: str | None = None,
) -> ProjectConfig:
    return ProjectConfig(
        project,
        endpoint=endpoint,
        endpoints=endpoints,
        credentials=credentials,
        user_agent=user_agent,
        region=region,
    )


def _names_of(endpoints: Sequence[str | ProjectConfig]) -> tuple[str, ...]:
    return tuple(each if isinstance(each, str) else f"{each.project} at {each.endpoint}" for each in endpoints)


def _endpoints_of(project: str, endpoint: object, endpoints: object) -> tuple[str, tuple[str | ProjectConfig, ...]]:
    """Return the first endpoint of a project, and all of them.

    :raises ConfigError: one is invalid or named twice, or both arguments are given and differ.
    """
    if not isinstance(endpoints, Sequence) or isinstance(endpoints, str) or len(endpoints) > _MOST_ENDPOINTS:
        rule = f"must be a list of at most {_MOST_ENDPOINTS} endpoints, such as ['https://a', 'https://b']"
        raise ConfigError("endpoints", rule, endpoints)
    given = tuple(endpoints) or tuple(endpoint.split(",") if isinstance(endpoint, str) else [endpoint])
    found: list[str | ProjectConfig] = []
    for each in given:
        found += each.at_each_endpoint() if isinstance(each, ProjectConfig) else [_endpoint_of(project, each)]
    first = found[0]
    if not isinstance(first, str):
        rule = f"must begin with an endpoint of {project}, as text; those of other projects follow"
        raise ConfigError("endpoints", rule, first)
    if len(set(_names_of(found))) < len(found):
        raise ConfigError("endpoints", "must differ from each other", found)
    if endpoints and endpoint and endpoint != first:
        raise ConfigError("endpoints", "must not be given together with another endpoint=", found)
    return first, tuple(found)


def _endpoint_of(project: str, endpoint: object) -> str:
    found = _normal_endpoint(endpoint)
    _check_has_no_project(found, project)
    return found


def _normal_endpoint(endpoint: object) -> str:
    rule = "must be a URL of http or https with a host and perhaps a port, such as https://cn-hangzhou.log.aliyuncs.com"
    if not isinstance(endpoint, str) or not is_header_text(endpoint.strip()):
        raise ConfigError("endpoint", rule, endpoint)
    text = endpoint.strip()
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        parts.port  # noqa: B018  # raises if the port is not a number
    except ValueError as error:
        raise ConfigError("endpoint", rule, endpoint) from error
    if parts.username or parts.password:
        raise ConfigError("endpoint", "must not hold a user name or password", f"{parts.scheme}://***@{parts.hostname}")
    if (
        parts.scheme not in {"http", "https"}
        or not _is_host(parts.hostname)
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise ConfigError("endpoint", rule, endpoint)
    return f"{parts.scheme}://{parts.netloc}"


def _is_host(name: str | None) -> bool:
    """Return True if the parts of a host's name have lengths that a resolver accepts."""
    return all(0 < len(part) < 64 for part in (name or "").removesuffix(".").split("."))


def _check_has_no_project(endpoint: str, project: str) -> None:
    """Refuse an endpoint of the service that names a project; a private host may have any name."""
    parts = urlsplit(endpoint)
    before, _, host = parts.netloc.partition(".")
    if _SERVICE_HOST.fullmatch(host) and is_project_name(before.lower()):
        if before.lower() != project.lower():
            rule = f"must not begin with a project, and {before!r} is another one: write {parts.scheme}://{host}"
            raise ConfigError("endpoint", rule, endpoint)
        rule = f"must not begin with the project, which is put in front of it: write {parts.scheme}://{host}"
        raise ConfigError("endpoint", rule, endpoint)


#: The most endpoints of a project: an internal, a VPC, a public and an accelerated one, each twice.
_MOST_ENDPOINTS = 8
# The service's own endpoints, public or within its network.
_SERVICE_HOST = re.compile(r"[a-z0-9-]+\.log\.aliyuncs\.com(:\d+)?", re.IGNORECASE)


@lru_cache(maxsize=1)
def host_address() -> str:
    """Return this host's address as other hosts see it, for the ``source`` of logs; looked up once a process."""
    try:
        addresses = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    except OSError:
        return "127.0.0.1"
    found = [str(address[4][0]) for address in addresses]
    return next((address for address in found if not address.startswith("127.")), "127.0.0.1")
