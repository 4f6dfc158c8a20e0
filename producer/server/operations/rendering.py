"""A log as clients of GetLogs read it: one flat object of texts, with the reserved names."""

from __future__ import annotations

from ...wire.reserved import free_name
from ..store.log_groups import StoredLog


def log_fields(log: StoredLog) -> dict[str, str]:
    """The fields of a log; what is not UTF-8 is shown replaced."""
    fields = {"__time__": str(log.time), "__source__": log.source, "__topic__": log.topic}
    if log.time_ns:
        fields["__time_ns_part__"] = str(log.time_ns)
    fields |= {f"__tag__:{key}": value for key, value in log.tags.items()}
    for key, value in log.contents:
        fields[free_name(key)] = value if isinstance(value, str) else value.decode(errors="replace")
    return fields


def pack_meta(log: StoredLog, index: int) -> str:
    """Where a log is: shard, position of its LogGroup, and its number in there."""
    return f"{log.shard}|{log.position}|{index}"
