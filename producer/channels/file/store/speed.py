"""Speed: the per-event functions of the format, native or pure, as :mod:`producer.runtime.compiled` chooses."""

from __future__ import annotations

from ....runtime.compiled import either
from . import format as pure

__all__ = ["decode_events", "encode_events", "encode_records"]

_COMPILED = f"{__package__}._format"
decode_events = either(_COMPILED, "decode_events", pure.decode_events)
encode_events = either(_COMPILED, "encode_events", pure.encode_events)
encode_records = either(_COMPILED, "encode_records", pure.encode_records)
