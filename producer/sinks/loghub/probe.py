"""One signed question about a target, for probes, and its finding as a sentence, for :meth:`Producer.check`.

The question is the cheapest that needs a key: the shards of the logstore, or the names of the project's logstores.
"""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import unquote, urlsplit

from ...model.config import ProducerConfig, ProjectConfig
from ...model.errors import (
    AttemptError,
    ClockSkewError,
    CredentialsError,
    MisconfiguredError,
    NetworkError,
    QuotaExceededError,
    ServerError,
    TargetError,
    UnreachableError,
)
from ...text.names import CREATED_BY_A_WRITE
from ...text.printable import one_line
from ...wire.list_shards import list_shards_headers, list_shards_path
from ...wire.signing import UnsignedRequest
from ..http.failures import CERTIFICATE, PLAIN_HTTP, PROXY, PROXY_AUTHENTICATION
from ..http.transport import Transport
from .classify import BAD_RESPONSE, is_acknowledgement
from .project_at import ProjectAt

# The maximum number of characters of a name from a server.
_SHOWN = 64
#: The region in the host name of an endpoint of the service, also of its internal networks.
_REGION = re.compile(r"([a-z0-9-]+?)(-intranet|-internal|-share)?\.log\.aliyuncs\.com")

# The meaning of LogHub's codes: the option at fault, and the remedy.
_ADVICE = {
    "InvalidAccessKeyId": ("access_key_id", "the service does not know this access key id"),
    "MissAccessKeyId": ("access_key_id", "the service does not know this access key id"),
    "SecurityTokenExpired": ("security_token", "the temporary credentials have expired: get new ones"),
    "InvalidSecurityToken": ("security_token", "the security token does not belong to this access key"),
    "ProjectForbidden": ("project", "the project is disabled: check its payment, or ask its owner"),
    "ProjectNotExist": ("project", "there is no such project at this endpoint: a project lives in one region"),
    "LogStoreNotExist": ("logstore", "the project has no such logstore: create it, or correct the name"),
    "LogstoreNotExist": ("logstore", "the project has no such logstore: create it, or correct the name"),
    PROXY_AUTHENTICATION: ("http", "a proxy requires a user and a password"),
    BAD_RESPONSE: ("endpoint", "the answer is not from LogHub: check the endpoint, and any proxy before it"),
}

# The first match counts.
_BY_CLASS: tuple[tuple[type[AttemptError], tuple[str, str]], ...] = (
    (CredentialsError, ("credentials", "the credentials provider returned no usable credentials")),
    (
        ClockSkewError,
        ("clock", "this machine's clock is not the server's: requests are corrected, logs keep this machine's time"),
    ),
    (
        UnreachableError,
        ("endpoint", "cannot be reached: check the host name, the port, and any proxy or firewall"),
    ),
    (NetworkError, ("endpoint", "the connection was opened, but no HTTP answer came")),
    (ServerError, ("server", "the server reports an internal error; try again later")),
    (MisconfiguredError, ("http", "the request could not be sent")),
)


def question(host: str, user_agent: str, logstore: str | None) -> UnsignedRequest:
    """Return the request to sign."""
    path = "/logstores" if logstore is None else list_shards_path(logstore)
    params = {"offset": "0", "size": "1"} if logstore is None else {}
    return UnsignedRequest(method="GET", path=path, params=params, headers=list_shards_headers(host, user_agent))


def ask_once(
    project: ProjectAt, logstore: str | None, timeout: float, name: str, *, warns: bool = True
) -> tuple[AttemptError | None, str]:
    """Ask the question over a connection of its own.

    :param name: the prefix of thread names.
    :param warns: True to warn while there is no answer.
    :returns: the error, or None for an answer; the user of an embedded LogHub, or an empty text.
    """
    limit = max(1, int(timeout * 1000))
    http = replace(
        project.options.http, connect_timeout_ms=limit, read_timeout_ms=limit, attempt_timeout_ms=limit, pool_size=1
    )
    transport = Transport(http, 1, project.clock, f"{name}-check", warns=warns)
    try:
        asked = question(project.target.host, project.user_agent, logstore)
        answer, headers, credentials = project.exchange(asked, transport)
        failure = None if is_acknowledgement(answer) else project.learn(credentials, answer, headers)
        return failure, headers.get("x-log-embedded-user", "")
    except AttemptError as error:
        return error, ""
    finally:
        transport.close()


def sentence(
    error: AttemptError | None, project: ProjectConfig, logstore: str | None, config: ProducerConfig, user: str = ""
) -> str:
    """Return the finding where nothing is wrong.

    :param error: the error of the question; None for an answer.
    :param user: the user of an embedded LogHub, from its header; empty for another server.
    :raises TargetError: something is wrong.
    """
    where = f"{project.project}{'' if logstore is None else f'/{logstore}'} at {project.endpoint}"
    if user:
        where += f" (an embedded LogHub of user {one_line(unquote(user)[:_SHOWN])!r})"
    if error is None:
        return f"{where} answers, and accepts the access key"
    if CREATED_BY_A_WRITE in error.message:
        return f"{where} answers, and accepts the access key, but {error.message}"
    if isinstance(error, QuotaExceededError):
        return f"{where} answers, but is over its quota now: {error}"
    if error.code in ("Unauthorized", "AccessDenied") or (error.http_status == 403 and error.code not in _ADVICE):
        return f"{where} answers, but this key may not ask ({error}): the first log shows whether it may write"
    problem, advice = _problem(error, project, config)
    raise TargetError(problem, f"{where}: {advice} ({error}{_request(error)})") from error


def _request(error: AttemptError) -> str:
    return f", request id {error.request_id}" if error.request_id else ""


def _problem(error: AttemptError, project: ProjectConfig, config: ProducerConfig) -> tuple[str, str]:
    """Return the option at fault, and the fault in words."""
    if error.code == "SignatureNotMatch":
        return _signature(project, config)
    if error.code in _ADVICE:
        return _ADVICE[error.code]
    if PLAIN_HTTP in error.message:
        return "endpoint", "the endpoint says https, but the server speaks http: write http://"
    if isinstance(error, UnreachableError) and CERTIFICATE in error.message:
        return "http", "the server's certificate is not trusted"
    if isinstance(error, UnreachableError) and error.message.startswith(PROXY):
        return "http", "the proxy opens no connection: check the proxy's address, and whether it may connect there"
    problem, words = next((advice for kind, advice in _BY_CLASS if isinstance(error, kind)), ("project", "refused"))
    if type(error) is NetworkError and project.endpoint.startswith("http://"):
        words += "; if the server speaks TLS there, write https://"
    return problem, words


def _signature(project: ProjectConfig, config: ProducerConfig) -> tuple[str, str]:
    if config.sign_version != "v4":
        return "access_key_secret", "the access key secret does not belong to this access key id"
    found = _REGION.fullmatch((urlsplit(project.endpoint).hostname or "").lower())
    region = project.region or config.region
    if found is not None and found[1] != region:
        return (
            "region",
            f"region is {region!r}, but the endpoint is in {found[1]!r}; sign_version v4 signs the region",
        )
    words = f"the access key secret does not belong to this access key id, or the server's region is not {region!r}"
    return "access_key_secret", words
