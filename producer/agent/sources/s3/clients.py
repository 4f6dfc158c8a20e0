"""Clients of S3 and SQS, whose requests a stop may leave behind, and their errors with advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from ....model.errors import ProducerError
from ....runtime.clock import Stop
from ....runtime.daemon_threads import on_daemon_thread
from ....runtime.loggers import get_logger
from .options import S3Options

_log = get_logger("loghub.agent.s3")
T = TypeVar("T")

#: Seconds between two checks of the stop during a request; seconds for which a request may continue after it.
_CHECK, _GRACE = 0.2, 1.0
#: Seconds to connect, and to wait for a byte; number of attempts of a request.
_CONNECT, _SILENCE, _ATTEMPTS = 5, 30, 3
#: The region of requests to a compatible store, if none is given.
_REGION = "us-east-1"


class StoppedError(Exception):
    """Raised when the source stops before a request has ended."""


class S3Error(ProducerError):
    """Raised when S3 or SQS refuses a request, or cannot be reached."""


class DeniedError(S3Error):
    """Raised when S3 refuses a request: the key lacks a permission, or the bucket does not exist."""


class FailedError(S3Error):
    """Raised when S3 or SQS answers that it failed, or is busy, after all attempts."""


class GoneError(S3Error):
    """Raised when an object was deleted or changed."""


class UnreadableError(S3Error):
    """Raised for an object that no retry can read: damaged, archived, or with an impossible name."""


_KEYS = "check access_key_id and secret_access_key, or the profile"
_PERMISSION = "give the key the permission {permission}"
#: Statuses of refusals, and those that a later attempt may not get.
_REFUSED, _LATER = range(400, 500), (408, 429)
#: The error and the advice by error code; an answer without a body has its status as code.
_CODES: Mapping[str, tuple[type[S3Error], str]] = {
    **dict.fromkeys(("NoSuchKey", "NoSuchVersion", "404"), (GoneError, "")),
    **dict.fromkeys(("PreconditionFailed", "412"), (GoneError, "it was replaced")),
    **dict.fromkeys(("AccessDenied", "AccessDeniedException", "403", "Forbidden"), (DeniedError, _PERMISSION)),
    **dict.fromkeys(("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidClientTokenId"), (DeniedError, _KEYS)),
    **dict.fromkeys(("ExpiredToken", "TokenRefreshRequired", "InvalidToken"), (DeniedError, "renew session_token")),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), (DeniedError, "set this machine's clock")),
    "InvalidObjectState": (UnreadableError, "it is archived: restore it"),
    "InvalidRequest": (UnreadableError, ""),  # of GetObject: it is encrypted with a key that its writer keeps
    "NoSuchBucket": (DeniedError, "check bucket, region and endpoint_url"),
    **dict.fromkeys(
        ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"),
        (S3Error, "check queue_url, and the permission sqs:GetQueueUrl of another account's queue"),
    ),
}


def clients_of(options: S3Options) -> tuple[Any, Any]:
    """Return the clients of S3 and of SQS; None for the second one without a queue.

    :raises S3Error: the profile is missing.
    """
    import boto3

    with translated("AWS's configuration"):
        session = boto3.session.Session(
            aws_access_key_id=options.access_key_id,
            aws_secret_access_key=options.secret_access_key,
            aws_session_token=options.session_token,
            region_name=options.region,
            profile_name=options.profile,
        )
        region = options.region or options.queues_region or session.region_name or _REGION
        given = {"region_name": region, "config": _config(options)}
        s3 = session.client("s3", endpoint_url=options.endpoint_url, **given)
        if options.queue_url is None:
            return s3, None
        return s3, session.client("sqs", endpoint_url=options.queues_endpoint, **given)


def _config(options: S3Options) -> Any:
    from botocore.config import Config

    return Config(
        connect_timeout=_CONNECT,
        read_timeout=_SILENCE,
        retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        max_pool_connections=options.workers + 1,
        s3={"addressing_style": "path" if options.path_style else "auto"},
        response_checksum_validation="when_required",  # compatible stores send no checksums
        request_checksum_calculation="when_required",
    )


def ask(options: S3Options) -> str:
    """Ask for one name of the bucket, or for nothing of the queue, with the permissions that the source needs.

    :returns: a sentence that says what answered.
    :raises S3Error: the bucket or the queue cannot be used.
    """
    s3, sqs = clients_of(options)
    with closing(s3), closing(sqs) if sqs else nullcontext():
        if sqs is None:
            with translated(f"s3://{options.bucket}", "s3:ListBucket"):
                s3.list_objects_v2(Bucket=options.bucket, Prefix=options.prefix, MaxKeys=1)
            return f"s3://{options.bucket} can be listed; whether its objects can be read was not checked"
        with translated(options.queue_url or "", "sqs:DeleteMessage"):
            nothing = [{"Id": "0", "ReceiptHandle": "none"}]  # SQS refuses it as an entry of the answer
            sqs.delete_message_batch(QueueUrl=options.queue_url, Entries=nothing)
        return f"{options.queue_url} answers; whether it has messages was not checked"


class Requests:
    """A client whose methods raise :class:`StoppedError` if the stop comes before the answer.

    :param client: the client of S3 or SQS.
    """

    def __init__(self, client: Any, stop: Stop) -> None:
        self._client, self._stop = client, stop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda **given: until_stopped(partial(method, **given), self._stop, given.get("WaitTimeSeconds", 0))


def until_stopped(request: Callable[[], T], stop: Stop, polled: float = 0) -> T:
    """Make a request on a thread of its own, which is left behind if the stop comes before the answer.

    boto3 cannot abort a request. Its threads are daemons, and what they receive is discarded.

    :param polled: seconds of a long poll: an answer that is lost makes its messages invisible for long.
    :raises StoppedError: there is no answer.
    """
    answer = on_daemon_thread(request, "producer-agent-s3-request")
    while not wait((answer,), _CHECK).done and not stop.is_set():
        pass
    if not wait((answer,), _GRACE + polled).done:
        _log.warning("left a request of S3 or SQS behind: no answer within %g s after the stop", _GRACE + polled)
        raise StoppedError
    return answer.result()


def connection_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a connection that breaks while a body is read."""
    from botocore.exceptions import BotoCoreError
    from urllib3.exceptions import HTTPError

    return BotoCoreError, HTTPError, OSError


@contextmanager
def translated(what: str, permission: str = "") -> Iterator[None]:
    """Raise errors of boto3, and of reading its answers, as :class:`S3Error` with advice.

    :param what: the object, bucket or queue.
    :param permission: the permission that the request needs.
    :raises S3Error: the block raised an error of boto3.
    """
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ParamValidationError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        raise _error_of(error.response, what, permission) from error
    except NoCredentialsError as error:
        advice = "set access_key_id and secret_access_key, a profile, or AWS's variables"
        raise DeniedError(f"{what}: there are no credentials; {advice}") from error
    except ParamValidationError as error:  # a name that cannot be sent
        raise UnreadableError(f"{what}: {error}") from error
    except BotoCoreError as error:
        raise S3Error(f"{what}: {error}") from error
    except (ResponseParserError, LookupError, ValueError, TypeError, AttributeError) as error:
        words = "the answer is not that of S3 or SQS; check endpoint_url or queue_url"
        raise S3Error(f"{what}: {words}: {type(error).__name__}: {error}") from error


def _error_of(response: Mapping[str, Any], what: str, permission: str) -> S3Error:
    answer, status = response.get("Error", {}), response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(answer.get("Code", ""))
    kind, advice = _CODES.get(code, (FailedError if status in _LATER or status not in _REFUSED else DeniedError, ""))
    advice = advice.format(permission=permission)
    return kind(f"{what}: {code}: {answer.get('Message', '')}{advice and f'; {advice}'}")
