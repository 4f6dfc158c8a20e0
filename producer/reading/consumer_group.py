"""A consumer group of a logstore: heartbeats that share out the shards, and checkpoints.

Each consumer says again and again which shards it reads, and is told which ones it shall read. One that was silent for
the group's timeout has left, and the others get what it had; so a shard is given up by no longer naming it.

Source: LogHub protocol; the official consumer libraries.
"""

from __future__ import annotations

from collections.abc import Collection

from .errors import LogHubReadError
from .signed_client import Question, SignedClient


class ConsumerGroup:
    """One member's view of a group; every method raises :class:`~.errors.LogHubReadError` if LogHub refuses.

    :param client: who closes it is whoever made it; one thread at a time may use it.
    :param consumer: the member's name, of its own in the group.
    """

    def __init__(self, client: SignedClient, logstore: str, group: str, consumer: str) -> None:
        self._client, self._group, self._consumer = client, group, consumer
        self._groups = f"/logstores/{logstore}/consumergroups"
        self._path = f"{self._groups}/{group}"

    def create(self, timeout: int) -> bool:
        """Make the group, or give the one that is there this timeout; whether there was none.

        :param timeout: seconds after which a silent member has left.
        """
        wanted = {"consumerGroup": self._group, "timeout": timeout, "order": False}
        try:
            self._ask("CreateConsumerGroup", Question.of_json(self._groups, wanted))
        except LogHubReadError as error:
            if error.code != "ConsumerGroupAlreadyExist":
                raise
            self._ask("UpdateConsumerGroup", Question.of_json(self._path, {"timeout": timeout}, method="PUT"))
            return False
        return True

    def heartbeat(self, held: Collection[str]) -> set[str]:
        """Say which shards this member reads; those that it shall read."""
        params = {"type": "heartbeat", "consumer": self._consumer}
        question = Question.of_json(self._path, sorted(map(int, held)), params)
        return self._client.json(f"heartbeat of {self._consumer}", question, lambda answer: set(map(str, answer)))

    def checkpoints(self) -> dict[str, str]:
        """For each shard the cursor up to which the group has read it; none where that was not said yet."""
        question = Question(self._path)
        return self._client.json(
            f"GetCheckPoint of {self._group}",
            question,
            lambda answer: {str(each["shard"]): each["checkpoint"] for each in answer if each["checkpoint"]},
        )

    def save(self, shard: str, cursor: str, *, force: bool = False) -> None:
        """Say that the group has read a shard up to there.

        :param force: also if this member does not have the shard.
        """
        params = {"type": "checkpoint", "consumer": self._consumer, "forceSuccess": "true" if force else "false"}
        content = {"shard": int(shard), "checkpoint": cursor}
        self._ask(f"UpdateCheckPoint of shard {shard}", Question.of_json(self._path, content, params))

    def _ask(self, what: str, question: Question) -> None:
        self._client.ask(f"{what} of {self._group}", question, lambda *_: None)
