"""Help texts of the counters, with their units."""

from __future__ import annotations

from collections.abc import Mapping

_NOT = "A counter of Flume's; always 0 here."

#: The help of each metric, by Flume's name or a name of this package in Flume's style.
HELPS: Mapping[str, str] = {
    "CertificateExpiryTimestampSeconds": "When the component's own certificate expires, seconds since 1970.",
    # sources
    "EventReceivedCount": "Events that the source received.",
    "EventAcceptedCount": "Events committed by all required channels, or dropped on purpose.",
    "EventDroppedCount": "Events dropped by interceptors or the selector, or since they can never be written.",
    "AppendReceivedCount": _NOT,
    "AppendAcceptedCount": _NOT,
    "AppendBatchReceivedCount": "Batches that the source received.",
    "AppendBatchAcceptedCount": "Batches committed by all required channels.",
    "OpenConnectionCount": "Open connections.",
    "UnreadableCount": "Existing files and directories that cannot be read.",
    "EventReadFail": "Failures to read: files, messages or requests, not events.",
    "SkippedNulCount": "Bytes of NULs at the beginning of lines that were skipped, such as copytruncate leaves.",
    "ObjectReadCount": "Objects read to their end.",
    "ObjectGoneCount": "Objects that were deleted or replaced before they were read to their end.",
    "UnknownPodCount": "Events of pods that the Kubernetes API has not told of.",
    "ReplacedCharacterCount": "Characters U+FFFD in place of bytes that are invalid in the file's encoding.",
    "EventUnparsedCount": "Events of another format than an interceptor parse or a sink expects.",
    "ChannelWriteFail": "Failures of a required channel to take a batch: attempts, not events.",
    "OptionalChannelWriteFail": "Failures of an optional channel to take a batch: attempts, not events.",
    "OptionalChannelEventFailCount": "Events that an optional channel did not take.",
    "GenericProcessingFail": "Unexpected failures, such as those of interceptors: batches or connections.",
    "ConnectionRefusedCount": "Connections refused: too many, or a wrong key.",
    "ConnectionFailedCount": "Connections that broke, or could not be established.",
    "InterceptionMicroseconds": "Time spent in interceptors, seconds.",
    "RestartCount": "Restarts of the component after failures.",
    # channels
    "EventPutAttemptCount": "Events of attempted puts; retried events count again.",
    "EventPutSuccessCount": "Events put into the channel.",
    "EventPutErrorCount": "Commits of puts that failed: batches, not events.",
    "EventTakeAttemptCount": "Takes attempted by sinks.",
    "EventTakeSuccessCount": "Events delivered and removed from the channel.",
    "EventTakeErrorCount": "Failed takes, and batches that could not be read: not events.",
    "CheckpointWriteErrorCount": "Checkpoints that could not be written.",
    "CheckpointBackupWriteErrorCount": "Second copies of checkpoints that could not be written.",
    "EventLostCount": "Events lost: damaged on the disk, or datagrams for which an interceptor failed.",
    "BatchLostCount": "Batches damaged on the disk and lost, including those whose events cannot be counted.",
    # sinks
    "EventDrainAttemptCount": "Events of attempted deliveries; retried events count again.",
    "EventDrainSuccessCount": "Events delivered.",
    "DeliveryMicroseconds": "Time spent in deliveries, failed ones included, seconds.",
    "EventRefusedCount": "Events that the destination refused permanently.",
    "EventWriteFail": "Failed deliveries: attempts, not events.",
    "ChannelReadFail": _NOT,
    "BatchEmptyCount": "Takes that found no events in the channel.",
    "BatchUnderflowCount": "Deliveries below both limits of a delivery, in events and bytes.",
    "BatchCompleteCount": "Deliveries that reached a limit of a delivery, in events or bytes.",
    "ConnectionCreatedCount": "Connections established.",
    "ConnectionClosedCount": "Connections closed.",
    "ObjectCount": "Objects written.",
    "ValueUnfitCount": "Values that fit no column of a Parquet file, kept in its column _rest.",
}


def help_of(name: str) -> str:
    """Return the help text of a counter. Unknown counters are a plugin's."""
    return HELPS.get(name, f"{name}, as the component counts it.")
