"""Rendering of logs for GetLogs: one flat object of texts, with the reserved names."""

from __future__ import annotations

from ...wire.reserved import free_name
from ..store.log_groups import StoredLog


def log_fields(log: StoredLog) -> dict[str, str]:
    """Return the fields of a log; bytes that are not UTF-8 are replaced."""
    fields = {"__time__": str(log.time), "__source__": log.source, "__topic__": log.topic}
    if log.time_ns:
        fields["__time_ns_part__"] = str(log.time_ns)
    fields |= {f"__tag__:{key}": value for key, value in log.tags.items()}
    for key, value in log.contents:
        fields[free_name(key)] = value if isinstance(value, str) else value.decode(errors="replace")
    return fields


def pack_meta(log: StoredLog, index: int) -> str:
    """Return the place of a log: shard, position of its LogGroup, and index in the LogGroup."""
    return f"{log.shard}|{log.position}|{index}"
