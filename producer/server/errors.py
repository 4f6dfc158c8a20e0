"""What this server answers when it refuses a request, and what it raises when it cannot start.

    Exception
    ├── ApiError                 one answer: HTTP status, error code, message; never leaves the server
    ├── ClientGoneError          nobody waits for an answer; never leaves the server
    └── ProducerError
        ├── ServerStartError     the server could not start: what happened and what to do
        └── ForkedServerError    a forked child asked its copy of the server for what only the parent has

Source of codes and statuses: LogHub protocol, Error codes. Where the protocol names no code for a case (a foreign
cursor, a missing Content-MD5), the name follows the pattern of its others.
"""

from __future__ import annotations

from ..model.errors import ProducerError

#: The status of each code that this server answers with by itself. A fault may answer with any other.
STATUS_OF = {
    "ConsumerGroupAlreadyExist": 400,
    "ConsumerNotMatch": 400,
    "IndexAlreadyExist": 400,
    "InvalidHost": 400,
    "InvalidAPIVersion": 400,
    "InvalidContentType": 400,
    "InvalidCursor": 400,
    "InvalidEncoding": 400,
    "InvalidRequestTime": 400,
    "InvalidSequenceId": 400,
    "LogStoreAlreadyExist": 400,
    "LogStoreInfoInvalid": 400,
    "MissingBodyRawSize": 400,
    "MissingContentMD5": 400,
    "ParameterInvalid": 400,
    "PostBodyInvalid": 400,
    "PostBodyUncompressError": 400,
    "ProjectAlreadyExist": 400,
    "RequestTimeExpired": 400,
    "InvalidAccessKeyId": 401,
    "MissAccessKeyId": 401,
    "SignatureNotMatch": 401,
    "Unauthorized": 401,
    "ConsumerGroupNotExist": 404,
    "ConsumerNotExsit": 404,
    "IndexConfigNotExist": 404,
    "LogStoreNotExist": 404,
    "ProjectNotExist": 404,
    "ShardNotExist": 404,
    "InvalidMethod": 405,
    "PostBodyTooLarge": 413,
    "InternalServerError": 500,
    "RequestTimeout": 500,
    "ServerBusy": 503,
}


class ApiError(Exception):
    """A refusal, as the client will read it.

    :ivar status: the HTTP status.
    :ivar code: ``errorCode`` of the JSON body.
    :ivar message: ``errorMessage`` of the JSON body.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.status = STATUS_OF[code]
        self.code = code
        self.message = message


class ClientGoneError(Exception):
    """The client went away before its request was whole, or before what it asked for was done."""


class ServerStartError(ProducerError):
    """The embedded server could not start (a taken port, an unusable data directory)."""


class ForkedServerError(ProducerError):
    """A forked child asked its copy of an embedded server for what only the parent has: threads, and what is stored."""

    def __init__(self) -> None:
        super().__init__(
            "this process was forked from the one that has the embedded LogHub: ask there, or over HTTP, or make a"
            " server here"
        )
