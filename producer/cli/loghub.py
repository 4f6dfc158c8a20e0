"""The requests of commands to LogHub, the service or the embedded one: projects, logstores, logs.

The requests follow the LogHub protocol, and for searches the official SDKs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from ..model.config import HttpConfig
from ..reading.logstore import LogstoreReader, Page
from ..reading.search import LogstoreSearch
from ..reading.signed_client import Question, SignedClient
from ..sinks.http.transport import Target, target_of
from ..wire.read_log_group import Fields, read_groups
from .profiles import Settings

#: The limit of names in one page of a list.
_NAMES_PER_PAGE = 500
#: Attempts after the first one. Few, because the user waits.
_RETRIES = 2

_NAMES = {
    "project": "--project",
    "logstore": "--logstore",
    "endpoint": "--endpoint",
    "access_key_id": "--access-key-id and its secret",
}
_IF_NOT_EXISTS = "--if-not-exists accepts that"
#: Advice by the server's error code. For ParameterInvalid, the server's message has it.
_ADVICE = {
    "ParameterInvalid": "",
    "ProjectAlreadyExist": _IF_NOT_EXISTS,
    "LogStoreAlreadyExist": _IF_NOT_EXISTS,
    "LogstoreAlreadyExist": _IF_NOT_EXISTS,
}
#: Further advice for an endpoint on this machine.
_LOCAL_ADVICE = {"RequestError": "is a LogHub running there? `producer serve` starts one"}
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
#: The characters that separate words in an index.
_WORD_SEPARATORS = ", '\";=()[]{}?@&<>/:\n\t\r"


class LogHub:
    """A client of LogHub for the commands; a context manager.

    :param timeout: the limit of each request with all its attempts, seconds.
    :param needs_project: True if the requests are for a project.
    :raises UsageError: a setting of the target is missing.
    """

    def __init__(self, settings: Settings, timeout: float, *, needs_project: bool = True) -> None:
        self._settings = settings
        project = settings.project_config(None if needs_project else settings.project or "any")
        milliseconds = max(1, int(timeout * 1000))
        http = HttpConfig(read_timeout_ms=milliseconds, attempt_timeout_ms=milliseconds)
        config = settings.producer_config(retries=_RETRIES, http=http)
        advice = _ADVICE | _LOCAL_ADVICE if urlsplit(project.endpoint).hostname in _THIS_MACHINE else _ADVICE
        self._client = SignedClient(
            project,
            project.project if needs_project else "",
            names=_NAMES,
            advice=advice,
            config=config,
            timeout=timeout,
            timeout_name="--timeout",
            target=target_of if needs_project else _without_project,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    @property
    def _logstore(self) -> str:
        return f"/logstores/{self._settings.needed('logstore')}"

    def projects(self) -> Iterator[Mapping[str, Any]]:
        """Yield all projects that the key may see."""
        return self._pages("ListProject", "/", "projects")

    def logstores(self) -> Iterator[str]:
        """Yield the names of the project's logstores."""
        return self._pages("ListLogstores", "/logstores", "logstores")

    def logstore(self, name: str) -> Mapping[str, Any]:
        """Return a logstore's settings."""
        return self._client.json("GetLogstore", Question(f"/logstores/{name}"), dict)

    def create_project(self, description: str) -> None:
        """Create the project."""
        self._post("CreateProject", "/", {"projectName": self._settings.needed("project"), "description": description})

    def create_logstore(self, shards: int, days: int) -> None:
        """Create the logstore.

        :param days: the days for which it keeps logs.
        """
        wanted = {"logstoreName": self._settings.needed("logstore"), "shardCount": shards, "ttl": days}
        self._post("CreateLogstore", "/logstores", wanted)

    def create_index(self) -> None:
        """Create an index of every word."""
        every_word = {"token": list(_WORD_SEPARATORS), "caseSensitive": False, "chn": False}
        self._post("CreateIndex", f"{self._logstore}/index", {"line": every_word})

    @property
    def searching(self) -> LogstoreSearch:
        """The search of the logstore."""
        return LogstoreSearch(self._client, self._settings.needed("logstore"))

    def context(self, pack_id: str, pack_meta: str, before: int, after: int) -> list[Fields]:
        """Return a log, and the logs that its sender sent before and after it."""
        params = {
            "type": "context_log",
            "pack_id": pack_id,
            "pack_meta": pack_meta,
            "back_lines": str(before),
            "forward_lines": str(after),
        }
        return self._client.json(
            "GetContextLogs", Question(self._logstore, params), lambda answer: list(answer["logs"])
        )

    @property
    def reader(self) -> LogstoreReader:
        """The reader of the logstore's shards."""
        return LogstoreReader(self._client, self._settings.needed("logstore"))

    def pull(self, shard: str, cursor: str, end: str | None = None) -> Page[list[Fields]]:
        """Pull the decoded logs of a shard from ``cursor`` on."""
        return self.reader.pull(shard, cursor, _logs_of, end=end)

    def _pages(self, operation: str, path: str, name: str) -> Iterator[Any]:
        offset = 0
        while True:
            params = {"offset": str(offset), "size": str(_NAMES_PER_PAGE)}
            page, total = self._client.json(
                operation, Question(path, params), lambda answer: (list(answer[name]), int(answer["total"]))
            )
            yield from page
            offset += len(page)
            if not page or offset >= total:
                return

    def _post(self, operation: str, path: str, content: Mapping[str, Any]) -> None:
        self._client.ask(operation, Question.of_json(path, content), lambda *_: None)


def _without_project(_project: str, endpoint: str) -> Target:
    return Target(endpoint, urlsplit(endpoint).netloc)


def _logs_of(body: bytes) -> list[Fields]:
    return [log for group in read_groups(body) for log in group]
