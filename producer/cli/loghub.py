"""What the commands ask of LogHub, the service or the embedded one: projects, logstores, logs.

Source: LogHub protocol, Reading back / admin; the official SDKs for searches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from ..config import ProjectConfig
from ..sinks.http.transport import Answer, Target, target_of
from ..spark.errors import LogHubReadError
from ..spark.signed_client import Question, SignedClient
from ..wire.compression import decompress
from ..wire.read_log_group import Fields, read_groups
from .profiles import Settings

#: Logs of one answer of GetLogs, names of one answer of a list, and LogGroups of one of PullLogs, at most.
PAGE, _NAMES_AT_ONCE, _GROUPS_AT_ONCE = 100, 500, 1000
#: How often an answer that is not complete is asked for again.
_INCOMPLETE = 20
#: Attempts after the first one: somebody waits for the answer.
_RETRIES = 2

_NAMES = {
    "project": "--project",
    "logstore": "--logstore",
    "endpoint": "--endpoint",
    "access_key_id": "--access-key-id and its secret",
}
_IF_NOT_EXISTS = "--if-not-exists makes that no error"
#: What to do, by the server's code; of the first one, the server says it.
_ADVICE = {
    "ParameterInvalid": "",
    "ProjectAlreadyExist": _IF_NOT_EXISTS,
    "LogStoreAlreadyExist": _IF_NOT_EXISTS,
    "LogstoreAlreadyExist": _IF_NOT_EXISTS,
}
#: What cuts text into words.
_BETWEEN_WORDS = ", '\";=()[]{}?@&<>/:\n\t\r"
_JSON = {"Content-Type": "application/json"}
_PROTOBUF = {"Accept": "application/x-protobuf"}


@dataclass(frozen=True, slots=True)
class Search:
    """Which logs.

    :ivar begin: Unix seconds.
    :ivar end: Unix seconds; behind the last one.
    :ivar query: keywords, and SQL behind ``|``.
    """

    begin: int
    end: int
    query: str = "*"


@dataclass(frozen=True, slots=True)
class Pulled:
    """One answer of PullLogs.

    :ivar logs: of its LogGroups.
    :ivar cursor: where to go on.
    :ivar at_end: nothing follows at this moment, or not before the end.
    """

    logs: Sequence[Fields]
    cursor: str
    at_end: bool


class LogHub:
    """Asks; a context manager.

    :param needs_project: whether what is asked is asked of a project.
    :raises UsageError: something of the target was not said.
    """

    def __init__(self, settings: Settings, *, needs_project: bool = True) -> None:
        self._settings = settings
        project = settings.project_config(None if needs_project else settings.project or "any")
        target = target_of(project.project, project.endpoint) if needs_project else _without_project(project)
        where = f"{project.project} at {project.endpoint}" if needs_project else project.endpoint
        config = settings.producer_config(retries=_RETRIES)
        self._client = SignedClient(project, target, where, names=_NAMES, advice=_ADVICE, config=config)

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
        """All projects that the key may see."""
        return self._listed("ListProject", "/", "projects")

    def logstores(self) -> Iterator[str]:
        """The names of the project's logstores."""
        return self._listed("ListLogstores", "/logstores", "logstores")

    def logstore(self, name: str) -> Mapping[str, Any]:
        """Its settings."""
        return self._client.json("GetLogstore", Question(f"/logstores/{name}"), dict)

    def create_project(self, description: str) -> None:
        """Make the project."""
        self._post("CreateProject", "/", {"projectName": self._settings.needed("project"), "description": description})

    def create_logstore(self, shards: int, days: int) -> None:
        """Make the logstore.

        :param days: that it keeps logs.
        """
        wanted = {"logstoreName": self._settings.needed("logstore"), "shardCount": shards, "ttl": days}
        self._post("CreateLogstore", "/logstores", wanted)

    def create_index(self) -> None:
        """Have the logstore find logs by each of their words."""
        every_word = {"token": list(_BETWEEN_WORDS), "caseSensitive": False, "chn": False}
        self._post("CreateIndex", f"{self._logstore}/index", {"line": every_word})

    def search(self, search: Search, *, newest_first: bool = False, offset: int = 0, line: int = PAGE) -> list[Fields]:
        """Logs that match; at most a page of them. With SQL, the rows.

        :raises LogHubReadError: LogHub does not say, or not all of it after several questions.
        """
        wanted = {"from": search.begin, "to": search.end, "query": search.query, "topic": ""}
        if "|" not in search.query:
            wanted |= {"offset": offset, "line": line, "reverse": newest_first}
        for _ in range(_INCOMPLETE):
            complete, logs = self._client.ask("GetLogs", self._posted(f"{self._logstore}/logs", wanted), _found)
            if complete:
                return logs
        raise _incomplete("GetLogs")

    def histogram(self, search: Search) -> list[Mapping[str, Any]]:
        """How many logs match: begin, end and count of each part of the range."""
        asked = {"type": "histogram", "from": str(search.begin), "to": str(search.end), "query": search.query}
        for _ in range(_INCOMPLETE):
            parts = self._client.json("GetHistograms", Question(self._logstore, asked), list)
            if all(part.get("progress", "Complete") == "Complete" for part in parts):
                return parts
        raise _incomplete("GetHistograms")

    def context(self, pack_id: str, pack_meta: str, before: int, after: int) -> list[Fields]:
        """The log that both name, and those that its sender sent before and after it."""
        asked = {
            "type": "context_log",
            "pack_id": pack_id,
            "pack_meta": pack_meta,
            "back_lines": str(before),
            "forward_lines": str(after),
        }
        return self._client.json("GetContextLogs", Question(self._logstore, asked), lambda answer: list(answer["logs"]))

    def shards(self) -> list[str]:
        """Their numbers, also of those that are only read any more."""
        question = Question(f"{self._logstore}/shards")
        return self._client.json("ListShards", question, lambda answer: [str(each["shardID"]) for each in answer])

    def cursor(self, shard: str, start: str | int) -> str:
        """The cursor of the first LogGroup that came at ``start`` or later.

        :param start: ``begin``, ``end``, or Unix seconds.
        """
        question = Question(f"{self._logstore}/shards/{shard}", {"type": "cursor", "from": str(start)})
        return self._client.json(f"GetCursor of shard {shard}", question, lambda answer: str(answer["cursor"]))

    def pull(self, shard: str, cursor: str, end: str | None = None) -> Pulled:
        """Logs from ``cursor`` on, in the order in which they came.

        :param end: the cursor before which it ends.
        """
        asked = {"type": "log", "cursor": cursor, "count": str(_GROUPS_AT_ONCE)}
        if end is not None:
            asked["end_cursor"] = end
        question = Question(f"{self._logstore}/shards/{shard}", asked, headers=_PROTOBUF)

        def take(answer: Answer, headers: Mapping[str, str]) -> Pulled:
            logs = [log for group in read_groups(_body(answer, headers)) for log in group]
            following = headers["x-log-cursor"]
            return Pulled(logs, following, following in (cursor, end))

        return self._client.ask(f"PullLogs of shard {shard}", question, take)

    def _listed(self, what: str, path: str, name: str) -> Iterator[Any]:
        offset = 0
        while True:
            asked = {"offset": str(offset), "size": str(_NAMES_AT_ONCE)}
            page, total = self._client.json(
                what, Question(path, asked), lambda answer: (list(answer[name]), int(answer["total"]))
            )
            yield from page
            offset += len(page)
            if not page or offset >= total:
                return

    def _post(self, what: str, path: str, content: Mapping[str, Any]) -> None:
        self._client.ask(what, self._posted(path, content), lambda *_: None)

    def _posted(self, path: str, content: Mapping[str, Any]) -> Question:
        return Question(path, method="POST", body=json.dumps(content).encode(), headers=_JSON)


def _without_project(project: ProjectConfig) -> Target:
    return Target(project.endpoint, urlsplit(project.endpoint).netloc)


def _body(answer: Answer, headers: Mapping[str, str]) -> bytes:
    size = int(headers.get("x-log-bodyrawsize", len(answer.body)))
    return decompress(answer.body, headers.get("x-log-compresstype", "none"), size)


def _found(answer: Answer, headers: Mapping[str, str]) -> tuple[bool, list[Fields]]:
    """Whether that is all, and the logs."""
    content = json.loads(_body(answer, headers))
    return content["meta"].get("progress", "Complete") == "Complete", list(content["data"])


def _incomplete(what: str) -> Exception:

    return LogHubReadError(f"{what}: LogHub had no complete answer after {_INCOMPLETE} questions: narrow the time")
