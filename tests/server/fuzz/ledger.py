"""The records of valid writes, and the check that the server holds them."""

from collections import Counter

from ..client import Client
from .cases import LEDGER, SHARDS, Case, Request
from .delivery import Outcome

#: Refusals of valid writes: the time was over, or there was no room.
_EXCUSES = {"RequestTimeout", "ServerBusy"}
#: Actions after which answers cannot be matched to requests, or the connection ends.
_FRAMING = {"Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade", "Host"}
_LONG_HEADER = 5000


class Ledger:
    """The records written, and how often the server has each."""

    def __init__(self) -> None:
        self._must: set[str] = set()
        self._must_not: set[str] = set()
        self._held: Counter[str] = Counter()
        self._cursors: dict[int, str] = {}

    def enter(self, case: Case, outcome: Outcome) -> list[str]:
        """Enter the records of ``case`` by its outcome; return the faults found."""
        if not case.intact or any(_is_unclear(request) for request in case.requests):
            return []
        whole = case.delivery in ("whole", "pieces")
        problems = []
        if whole and outcome.ended and len(outcome.answers) != len(case.requests):
            problems.append(f"{len(case.requests)} requests have {len(outcome.answers)} answers")
        for request, answer in zip(case.requests, outcome.answers, strict=False):
            if request.record is None:
                continue
            (self._must if answer.status == 200 else self._must_not).add(request.record)
            if whole and answer.status != 200 and answer.code not in _EXCUSES and not request.after_signing:
                problems.append(f"the good write of {request.record} is answered {answer}")
        return problems

    def check(self, client: Client) -> list[str]:
        """Read the server's new records since the last check; return the faults found."""
        for shard in range(SHARDS):
            self._read(client, shard)
        return [
            *(f"{record} is stored {self._held[record]} times" for record in self._must if self._held[record] != 1),
            *(f"{record} was refused, and is stored" for record in self._must_not if self._held[record]),
            *(f"{record} is stored {count} times" for record, count in self._held.items() if count > 1),
        ]

    @property
    def stored(self) -> int:
        return len(self._held)

    def _read(self, client: Client, shard: int) -> None:
        cursor = self._cursors.get(shard) or client.cursor(shard, "begin", LEDGER)
        while True:
            groups, answer = client.pull(shard, cursor, logstore=LEDGER)
            for group in groups:
                for log in group.Logs:
                    self._held[log.Contents[0].Value.decode()] += 1
            if answer.headers["x-log-cursor"] == cursor:
                break
            cursor = answer.headers["x-log-cursor"]
        self._cursors[shard] = cursor


def _is_unclear(request: Request) -> bool:
    headers = request.headers | request.after_signing
    target = len(request.path) + sum(len(value) for pair in request.params for value in pair)
    return (
        any(name in _FRAMING or len(value or "") > _LONG_HEADER for name, value in headers.items())
        or target > _LONG_HEADER
        or len(request.raw_query or "") > _LONG_HEADER
    )
