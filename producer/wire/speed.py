"""Selects the native or pure encoders, by :mod:`producer.runtime.compiled`."""

from __future__ import annotations

from ..runtime.compiled import compiled, either
from . import event_records, lines, log_group
from . import measure_lines as measures

__all__ = ["TWIN", "encode_events", "encode_lines", "encode_log", "measure_lines"]

#: ``native`` or ``pure``.
TWIN = "pure" if compiled(f"{__package__}._lines") is None else "native"
encode_events = either(f"{__package__}._event_records", "encode_events", event_records.encode_events)
encode_lines = either(f"{__package__}._lines", "encode_lines", lines.encode_lines)
encode_log = either(f"{__package__}._log_group", "encode_log", log_group.encode_log)
measure_lines = either(f"{__package__}._measure_lines", "measure_lines", measures.measure_lines)
