"""Logs that match a query: GetLogs and GetHistograms.

Source: LogHub protocol, Reading back; the official SDK for the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..sinks.http.transport import Answer
from ..wire.read_log_group import Fields
from .errors import LogHubReadError
from .logstore import body_of
from .signed_client import Question, SignedClient

#: Logs of one answer of GetLogs, at most.
PAGE = 100
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
# How often an answer that is not complete is asked for again.
_INCOMPLETE = 20


@dataclass(frozen=True, slots=True)
class Search:
    """Which logs, by their own time.

    :ivar begin: Unix seconds.
    :ivar end: Unix seconds; behind the last one.
    :ivar query: keywords, and SQL behind ``|``.
    """

    begin: int
    end: int
    query: str = "*"


class LogstoreSearch:
    """Searches a logstore; every method raises :class:`~.errors.LogHubReadError` if LogHub does not say, or not all of
    it after several questions.

    :param client: who closes it is whoever made it.
    """

    def __init__(self, client: SignedClient, logstore: str) -> None:
        self._client, self._path = client, f"/logstores/{logstore}"

    def logs(self, search: Search, *, newest_first: bool = False, offset: int = 0, line: int = PAGE) -> list[Fields]:
        """Logs that match, in order of time; at most a page of them. With SQL, the rows."""
        wanted = {"from": search.begin, "to": search.end, "query": search.query, "topic": ""}
        if is_paged(search.query):
            wanted |= {"offset": offset, "line": line, "reverse": newest_first}
        for _ in range(_INCOMPLETE):
            complete, logs = self._client.ask("GetLogs", Question.of_json(f"{self._path}/logs", wanted), _found)
            if complete:
                return logs
        raise _incomplete("GetLogs")

    def histogram(self, search: Search) -> list[Mapping[str, Any]]:
        """How many logs match: begin, end and count of each part of the range."""
        asked = {"type": "histogram", "from": str(search.begin), "to": str(search.end), "query": search.query}
        for _ in range(_INCOMPLETE):
            parts = self._client.json("GetHistograms", Question(self._path, asked), list)
            if all(part.get("progress", "Complete") == "Complete" for part in parts):
                return parts
        raise _incomplete("GetHistograms")


def is_paged(query: str) -> bool:
    """Whether it finds logs, which come in pages: SQL says itself which rows it wants."""
    return command_of(query) in ("", "with_pack_meta")


def command_of(query: str) -> str:
    """What stands behind the first ``|`` outside quotation marks, in lower case; empty if there is none."""
    return _QUOTED.sub("", query).partition("|")[2].strip().lower()


def _found(answer: Answer, headers: Mapping[str, str]) -> tuple[bool, list[Fields]]:
    """Whether that is all, and the logs."""
    content = json.loads(body_of(answer, headers))
    return content["meta"].get("progress", "Complete") == "Complete", list(content["data"])


def _incomplete(what: str) -> LogHubReadError:
    return LogHubReadError(f"{what}: LogHub had no complete answer after {_INCOMPLETE} questions: narrow the time")
