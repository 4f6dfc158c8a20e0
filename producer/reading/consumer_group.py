"""A consumer group of a logstore: heartbeats that distribute the shards, and checkpoints.

Each heartbeat of a consumer lists the shards that it reads, and the answer lists the shards assigned to it. A consumer
without a heartbeat for the group's timeout has left, and its shards go to the others. A consumer releases a shard by no
longer listing it.

Source: LogHub protocol; the official consumer libraries.
"""

from __future__ import annotations

from collections.abc import Collection

from .errors import LogHubReadError
from .signed_client import Question, SignedClient


class ConsumerGroup:
    """A member of a consumer group; every method raises :class:`~.errors.LogHubReadError` if LogHub refuses.

    :param client: the client, which the caller closes; one thread at a time may use it.
    :param consumer: the member's name, unique in the group.
    """

    def __init__(self, client: SignedClient, logstore: str, group: str, consumer: str) -> None:
        self._client, self._group, self._consumer = client, group, consumer
        self._groups = f"/logstores/{logstore}/consumergroups"
        self._path = f"{self._groups}/{group}"

    def create(self, timeout: int) -> bool:
        """Create the group, or change its timeout if it exists. Return True if it was created.

        :param timeout: seconds without a heartbeat after which a member has left.
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
        """Send the shards that this member reads; return the shards assigned to it."""
        params = {"type": "heartbeat", "consumer": self._consumer}
        question = Question.of_json(self._path, sorted(map(int, held)), params)
        return self._client.json(f"heartbeat of {self._consumer}", question, lambda answer: set(map(str, answer)))

    def checkpoints(self) -> dict[str, str]:
        """Return the cursor up to which the group has read each shard; shards without a checkpoint are left out."""
        question = Question(self._path)
        return self._client.json(
            f"GetCheckPoint of {self._group}",
            question,
            lambda answer: {str(each["shard"]): each["checkpoint"] for each in answer if each["checkpoint"]},
        )

    def save(self, shard: str, cursor: str, *, force: bool = False) -> None:
        """Save the group's checkpoint of a shard.

        :param force: True to save it even if another member owns the shard.
        """
        params = {"type": "checkpoint", "consumer": self._consumer, "forceSuccess": "true" if force else "false"}
        content = {"shard": int(shard), "checkpoint": cursor}
        self._ask(f"UpdateCheckPoint of shard {shard}", Question.of_json(self._path, content, params))

    def _ask(self, what: str, question: Question) -> None:
        self._client.ask(f"{what} of {self._group}", question, lambda *_: None)
