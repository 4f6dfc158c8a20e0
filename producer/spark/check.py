"""What can be found wrong with a target before a job begins: the endpoint, the logstore, the credentials."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ..model.config import ProducerConfig
from ..model.errors import AttemptError, ConfigError, MisconfiguredError, NetworkError
from ..reading.errors import LogHubReadError
from ..runtime.loggers import get_logger
from ..text.names import CREATED_BY_A_WRITE
from .logstore import LogstoreClient
from .options import Target, knows_credentials

_log = get_logger("loghub.spark.write")

#: How often LogHub is asked for the logstore before the job begins, besides the first time, and the longest pause.
_RETRIES, _LONGEST_PAUSE_MS = 3, 1000
#: Seconds that all of this takes at most.
CHECK_SECONDS = 60.0

# What a refusal of the question says about the options. Unauthorized is not among them: it may mean the question alone.
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
    """Ask LogHub for the logstore's shards, to find out now what would else fail every task.

    :param config: how requests travel.
    :param patient: whether a server that cannot be reached or is busy is no error: it may be there again when the rows
        are.
    :raises ConfigError: names the option that is wrong.
    """
    fault = fault_of(target, config, patient=patient)
    if fault is not None:
        rule = f"{fault.error} (asked before the job; checkTarget=false leaves that out)"
        raise ConfigError(fault.option, rule, _shown(target, fault.option)) from fault.error


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a target.

    :ivar option: the option that says it, by the name that Spark's users know.
    :ivar error: of the question.
    :ivar cause: what LogHub, or the network, said.
    """

    option: str
    error: LogHubReadError
    cause: AttemptError


def fault_of(target: Target, config: ProducerConfig, *, patient: bool, timeout: float = CHECK_SECONDS) -> Fault | None:
    """What is wrong with a target, by the answer to a request for its shards; None if nothing is known to be.

    A key that may write and not list shards is as good as any; what only the executors' environment knows cannot be
    tried here.

    :param config: how requests travel.
    :param patient: as of :func:`check_target`.
    :param timeout: seconds that the question may take.
    """
    if not knows_credentials(target):
        return None
    quick = dataclasses.replace(config, retries=_RETRIES, max_retry_backoff_ms=_LONGEST_PAUSE_MS)
    try:
        with LogstoreClient(target, quick, timeout=timeout) as client:
            client.shards()
    except LogHubReadError as error:
        cause = error.__cause__
        if isinstance(cause, AttemptError) and CREATED_BY_A_WRITE in cause.message:
            return None
        option = _option_at_fault(cause)
        if isinstance(cause, AttemptError) and option is not None and not (option == "endpoint" and patient):
            return Fault(option, error, cause)
        _log.warning("could not check %s before the job, going on: %s", target, error)
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
