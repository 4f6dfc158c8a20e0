"""Check a target before a job begins: the endpoint, the logstore and the credentials."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ..model.config import ProducerConfig
from ..model.errors import AttemptError, ConfigError, MisconfiguredError, NetworkError
from ..reading.errors import LogHubReadError
from ..runtime.loggers import get_logger
from ..text.names import CREATED_BY_A_WRITE
from .logstore import LogstoreClient
from .options import Target, lack_of_credentials

_log = get_logger("loghub.spark.write")

#: The retries of the request for the logstore, and the longest backoff.
_RETRIES, _LONGEST_PAUSE_MS = 3, 1000
#: The limit of the whole check, seconds.
CHECK_SECONDS = 60.0

# The option at fault by error code. Not Unauthorized: a key may be allowed to write, but not to list shards.
_OPTION_OF_CODE = {
    "InvalidAccessKeyId": "accessKeyId",
    "MissAccessKeyId": "accessKeyId",
    "SignatureNotMatch": "accessKeySecret",
    "SecurityTokenExpired": "securityToken",
    "InvalidSecurityToken": "securityToken",
    "ProjectNotExist": "project",
    "LogStoreNotExist": "logstore",
    "LogstoreNotExist": "logstore",
    "ParameterInvalid": "logstore",
}


def check_target(target: Target, config: ProducerConfig, *, patient: bool) -> None:
    """Query LogHub for the logstore's shards, to find errors that would fail every task.

    :param config: the configuration of requests.
    :param patient: True if a server that is unreachable or busy is not an error: it may recover before the rows come.
    :raises ConfigError: an option is at fault; the error names it.
    """
    fault = fault_of(target, config, patient=patient)
    if fault is not None:
        rule = f"{fault.error} (checked before the job; checkTarget=false skips the check)"
        raise ConfigError(fault.option, rule, _shown(target, fault.option)) from fault.error


@dataclass(frozen=True, slots=True)
class Fault:
    """An error of a target.

    :ivar option: the option at fault, by its name in Spark.
    :ivar error: the error of the check.
    :ivar cause: the error of LogHub or the network.
    """

    option: str
    error: LogHubReadError
    cause: AttemptError


def fault_of(target: Target, config: ProducerConfig, *, patient: bool, timeout: float = CHECK_SECONDS) -> Fault | None:
    """Query LogHub for the target's shards, and return the error at fault; None if none is known.

    A key that may not list shards is not a fault. Credentials that only the executors have are not checked.

    :param config: the configuration of requests.
    :param patient: True if a server that is unreachable or busy is not an error.
    :param timeout: the limit of the check, seconds.
    """
    if lack_of_credentials(target) is not None:
        return None
    quick = dataclasses.replace(config, retries=_RETRIES, max_retry_backoff_ms=_LONGEST_PAUSE_MS)
    fault = None
    for project in target.project.at_each_endpoint():  # one that answers suffices
        fault = _fault_at(Target(project, target.logstore), quick, timeout=timeout)
        if fault is None or fault.option != "endpoint":
            return fault
    if patient and fault is not None:
        _log.warning("cannot check %s before the job, continuing: %s", target, fault.error)
        return None
    return fault


def _fault_at(target: Target, quick: ProducerConfig, *, timeout: float) -> Fault | None:
    try:
        with LogstoreClient(target, quick, timeout=timeout) as client:
            client.shards()
    except LogHubReadError as error:
        cause = error.__cause__
        if isinstance(cause, AttemptError) and CREATED_BY_A_WRITE in cause.message:
            return None
        option = _option_at_fault(cause)
        if isinstance(cause, AttemptError) and option is not None:
            return Fault(option, error, cause)
        _log.warning("cannot check %s before the job, continuing: %s", target, error)
    return None


def _option_at_fault(cause: BaseException | None) -> str | None:
    if not isinstance(cause, AttemptError):
        return None
    if cause.code in _OPTION_OF_CODE:
        return _OPTION_OF_CODE[cause.code]
    unsent = isinstance(cause, MisconfiguredError) and cause.http_status is None
    return "endpoint" if unsent or isinstance(cause, NetworkError) else None


def _shown(target: Target, option: str) -> str:
    shown = {"endpoint": target.project.endpoint, "project": target.project.project, "logstore": target.logstore}
    return shown.get(option, "***")
