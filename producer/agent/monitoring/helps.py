"""What each counter counts, in what unit."""

from __future__ import annotations

from collections.abc import Mapping

_NOT = "Flume's; nothing here counts it."

#: By Flume's names, and by ours that are made likewise.
HELPS: Mapping[str, str] = {
    "CertificateExpiryTimestampSeconds": "When the component's own certificate expires, seconds since 1970.",
    # sources
    "EventReceivedCount": "Events that came to the source.",
    "EventAcceptedCount": "Events that all required channels have, or that were dropped on purpose.",
    "EventDroppedCount": "Events dropped by interceptors or the selector on purpose, or as they can never be written.",
    "AppendReceivedCount": _NOT,
    "AppendAcceptedCount": _NOT,
    "AppendBatchReceivedCount": "Batches that came to the source.",
    "AppendBatchAcceptedCount": "Batches that all required channels have.",
    "OpenConnectionCount": "Connections that are open now.",
    "UnreadableCount": "Files and directories that are there now and cannot be read.",
    "EventReadFail": "Failures to read: files, messages or requests, not events.",
    "SkippedNulCount": "Bytes of NULs at the beginning of lines that were skipped, such as copytruncate leaves.",
    "ChannelWriteFail": "Failures of a required channel to take a batch: tries, not events.",
    "OptionalChannelWriteFail": "Failures of an optional channel to take a batch: tries, not events.",
    "OptionalChannelEventFailCount": "Events that an optional channel did not take.",
    "GenericProcessingFail": "Unexpected failures, such as those of interceptors: batches or connections.",
    "ConnectionRefusedCount": "Connections that were refused: too many, or a wrong key.",
    "ConnectionFailedCount": "Connections that broke, or that could not be made.",
    "InterceptionMicroseconds": "Time that interceptors have taken, in seconds.",
    "RestartCount": "Times that the component failed and is run again.",
    # channels
    "EventPutAttemptCount": "Events that were to be put; those of a put that was tried again count again.",
    "EventPutSuccessCount": "Events that were put.",
    "EventPutErrorCount": "Commits of puts that failed: batches, not events.",
    "EventTakeAttemptCount": "Times that a sink asked for events.",
    "EventTakeSuccessCount": "Events that were delivered and have left.",
    "EventTakeErrorCount": "Takes that failed, and batches that could not be read: not events.",
    "CheckpointWriteErrorCount": "Checkpoints that could not be written.",
    "CheckpointBackupWriteErrorCount": "Second copies of checkpoints that could not be written.",
    "EventLostCount": "Events that are lost: damaged on the disk, or datagrams where an interceptor failed.",
    "BatchLostCount": "Batches that are damaged on the disk and lost, those included whose events cannot be counted.",
    # sinks
    "EventDrainAttemptCount": "Events that were to be delivered; those of a delivery that was tried again count again.",
    "EventDrainSuccessCount": "Events that were delivered.",
    "DeliveryMicroseconds": "Time that deliveries have taken, also those that failed, in seconds.",
    "EventRefusedCount": "Events that the destination has refused permanently.",
    "EventWriteFail": "Deliveries that failed: tries, not events.",
    "ChannelReadFail": _NOT,
    "BatchEmptyCount": "Times that the channel had nothing.",
    "BatchUnderflowCount": "Deliveries of less than the most events and bytes of one.",
    "BatchCompleteCount": "Deliveries of the most events or bytes of one.",
    "ConnectionCreatedCount": "Connections that were made.",
    "ConnectionClosedCount": "Connections that were closed.",
    "ObjectCount": "Objects that were made.",
}


def help_of(name: str) -> str:
    """For a counter; what is not known here is a plug-in's."""
    return HELPS.get(name, f"{name}, as the component counts it.")
