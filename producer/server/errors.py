"""Refusals of requests, and errors that the server raises.

    Exception
    ├── ApiError                 an error answer: HTTP status, error code, message; stays inside the server
    ├── ClientGoneError          the client disconnected before its answer; stays inside the server
    └── ProducerError
        ├── ServerStartError     the server could not start: the reason and the remedy
        └── ForkedServerError    a forked child used its copy of a server that only the parent can use

Source of codes and statuses: LogHub protocol, Error codes. Where the protocol names no code for a case (a foreign
cursor, a missing Content-MD5), the code is formed like the protocol's others.
"""

from __future__ import annotations

from ..model.errors import ProducerError

#: The status of each code that this server answers with. A fault may answer with any other.
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
    """A refusal, as the client reads it.

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
    """Raised when the client disconnected before its request had arrived or was carried out."""


class ServerStartError(ProducerError):
    """Raised when the embedded server cannot start (a taken port, an unusable data directory)."""


class ForkedServerError(ProducerError):
    """Raised when a forked child uses its copy of an embedded server: threads and data are the parent's."""

    def __init__(self) -> None:
        super().__init__(
            "the embedded LogHub belongs to the parent of this forked process: use it there or over HTTP, or start one"
            " here"
        )
