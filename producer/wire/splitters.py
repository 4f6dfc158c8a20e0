"""Selects the native or pure splitters of lines, which parsers need, but producers do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.compiled import either
from . import access_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .text_column import SplitLines

__all__ = ["split_access", "split_delimited", "split_headers", "split_logfmt", "split_objects", "split_syslog"]


split_access = either(f"{__package__}._access_log", "split_access", access_log.split_access)
#: None without native code: then lines are parsed one by one. This applies to the following ones, too.
split_objects: Callable[[bytes | memoryview, bytes | memoryview], SplitLines] | None = either(
    f"{__package__}._json_objects", "split_objects", None
)
split_logfmt: Callable[[bytes | memoryview, bytes | memoryview], SplitLines] | None = either(
    f"{__package__}._logfmt", "split_logfmt", None
)
split_syslog: Callable[[bytes | memoryview, bytes | memoryview], SplitLines] | None = either(
    f"{__package__}._syslog", "split_syslog", None
)
split_headers: Callable[[bytes | memoryview, bytes | memoryview], SplitLines] | None = either(
    f"{__package__}._syslog", "split_headers", None
)
split_delimited: Callable[[bytes | memoryview, bytes | memoryview, int, Sequence[str]], SplitLines] | None = either(
    f"{__package__}._delimited", "split_delimited", None
)
