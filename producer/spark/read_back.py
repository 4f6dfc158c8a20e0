"""Reads a logstore through the protocol, as any consumer would: ListShards, GetCursor, PullLogs.

Nothing of the producer takes part but the signature; what comes is decoded by the protobuf library.
Source: LogHub protocol, Reading back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import requests

from ..wire.compression import decompress
from ..wire.schema import LogGroupList
from ..wire.signing import SigningKey, UnsignedRequest, sign_v1
from .errors import ReadBackError

_GROUPS_A_PULL = 100
_TIMEOUT_SECONDS = 60


class LogstoreReader:
    """A reader of one logstore; a context manager.

    :param endpoint: such as ``http://127.0.0.1:9170``; the project travels in the Host header.
    :param project: the project.
    :param logstore: the logstore.
    :param key: who signs.
    """

    def __init__(self, endpoint: str, project: str, logstore: str, key: SigningKey) -> None:
        self._endpoint = endpoint
        self._host = f"{project}.{urlsplit(endpoint).netloc}"
        self._path = f"/logstores/{logstore}/shards"
        self._key = key
        self._session = requests.Session()
        # A proxy of the environment cannot reach a server on this machine.
        self._session.trust_env = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def logs(self) -> Iterator[dict[str, str]]:
        """The fields of every log of every shard.

        :raises ReadBackError: the server answered anything but 200.
        """
        for shard in json.loads(self._get(self._path, {}).content):
            path = f"{self._path}/{shard['shardID']}"
            for group in self._groups(path):
                for log in group.Logs:
                    yield {field.Key: field.Value.decode() for field in log.Contents}

    def _groups(self, path: str) -> Iterator[Any]:
        cursor = json.loads(self._get(path, {"type": "cursor", "from": "begin"}).content)["cursor"]
        while True:
            answer = self._get(path, {"type": "log", "cursor": cursor, "count": str(_GROUPS_A_PULL)})
            yield from LogGroupList.FromString(_body(answer)).LogGroups
            following = answer.headers["x-log-cursor"]
            if following == cursor:
                return
            cursor = following

    def _get(self, path: str, params: dict[str, str]) -> requests.Response:
        headers = {
            "Host": self._host,
            "Accept": "application/x-protobuf",
            "Accept-Encoding": "lz4",
            "x-log-apiversion": "0.6.0",
            "x-log-bodyrawsize": "0",
        }
        signed = sign_v1(
            UnsignedRequest(method="GET", path=path, params=params, headers=headers), self._key, datetime.now(UTC)
        )
        try:
            answer = self._session.get(self._endpoint + path, params=params, headers=signed, timeout=_TIMEOUT_SECONDS)
        except requests.RequestException as error:
            raise ReadBackError(f"GET {path} at {self._endpoint}: {error}") from error
        if answer.status_code != requests.codes.ok:
            raise ReadBackError(f"GET {path} at {self._endpoint}: status {answer.status_code}: {answer.text[:500]}")
        return answer


def _body(answer: requests.Response) -> bytes:
    compression = answer.headers.get("x-log-compresstype", "none")
    return decompress(answer.content, compression, int(answer.headers["x-log-bodyrawsize"]))
