"""Searches of a logstore: GetLogs and GetHistograms.

Source: LogHub protocol, Reading back; the official SDK for the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..sinks.http.transport import Answer
from ..text.plural import counted
from ..wire.read_log_group import Fields
from .errors import LogHubReadError
from .logstore import body_of
from .signed_client import Question, SignedClient

#: Maximum number of logs of one answer of GetLogs.
PAGE = 100
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
# Maximum number of requests for an answer that is not complete.
_INCOMPLETE = 20


@dataclass(frozen=True, slots=True)
class Search:
    """A search, by the time of the logs.

    :ivar begin: the first second, Unix seconds.
    :ivar end: the second after the last one, Unix seconds.
    :ivar query: keywords, and SQL after ``|``.
    """

    begin: int
    end: int
    query: str = "*"


class LogstoreSearch:
    """A searcher of a logstore.

    Every method raises :class:`~.errors.LogHubReadError` if LogHub refuses, or has no complete answer after several
    requests.

    :param client: the client, which the caller closes.
    """

    def __init__(self, client: SignedClient, logstore: str) -> None:
        self._client, self._path = client, f"/logstores/{logstore}"

    def logs(self, search: Search, *, newest_first: bool = False, offset: int = 0, line: int = PAGE) -> list[Fields]:
        """Return a page of matching logs in order of time; with SQL, all rows."""
        wanted = {"from": search.begin, "to": search.end, "query": search.query, "topic": ""}
        if is_paged(search.query):
            wanted |= {"offset": offset, "line": line, "reverse": newest_first}
        for _ in range(_INCOMPLETE):
            complete, logs = self._client.ask("GetLogs", Question.of_json(f"{self._path}/logs", wanted), _found)
            if complete:
                return logs
        raise _incomplete("GetLogs")

    def histogram(self, search: Search) -> list[Mapping[str, Any]]:
        """Return begin, end and number of matching logs of each part of the range."""
        params = {"type": "histogram", "from": str(search.begin), "to": str(search.end), "query": search.query}
        for _ in range(_INCOMPLETE):
            parts = self._client.json("GetHistograms", Question(self._path, params), list)
            if all(part.get("progress", "Complete") == "Complete" for part in parts):
                return parts
        raise _incomplete("GetHistograms")


def is_paged(query: str) -> bool:
    """Return True if the query finds logs, which come in pages; SQL selects its rows itself."""
    return command_of(query) in ("", "with_pack_meta")


def command_of(query: str) -> str:
    """Return the text after the first ``|`` outside quotation marks, in lower case; empty if there is none."""
    return _QUOTED.sub("", query).partition("|")[2].strip().lower()


def _found(answer: Answer, headers: Mapping[str, str]) -> tuple[bool, list[Fields]]:
    """Return True if the answer is complete, and the logs."""
    content = json.loads(body_of(answer, headers))
    return content["meta"].get("progress", "Complete") == "Complete", list(content["data"])


def _incomplete(what: str) -> LogHubReadError:
    requests = counted(_INCOMPLETE, "request")
    return LogHubReadError(f"{what}: LogHub had no complete answer after {requests}: narrow the time range")
