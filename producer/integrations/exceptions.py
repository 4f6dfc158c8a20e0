"""The fields of an exception for all integrations, with OpenTelemetry's names."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Any

from .values import message_of

#: The result of ``sys.exc_info()``.
ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


def exception_fields(given: object, stacktrace: str | None = None) -> dict[str, Any]:
    """Return ``exception.type``, ``exception.message`` and ``exception.stacktrace``; nothing if there is no exception.

    :param given: a logger's ``exc_info``: an exception, a tuple of three, or True for the exception being handled.
    :param stacktrace: the formatted traceback; None to format it here.
    """
    kind, error, trace = _exc_info(given)
    if kind is None or error is None:
        return {}
    return {
        "exception.type": type_name(kind),
        "exception.message": message_of(error),
        "exception.stacktrace": stacktrace or "".join(traceback.format_exception(kind, error, trace)).rstrip("\n"),
    }


def type_name(kind: type[BaseException]) -> str:
    """Return the full name of an exception's type, without a module for a builtin type."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _exc_info(given: Any) -> ExcInfo:
    if isinstance(given, BaseException):
        return type(given), given, given.__traceback__
    if isinstance(given, tuple):
        kind, error, trace = given if len(given) == 3 else (None, None, None)
        return (kind, error, trace) if isinstance(kind, type) else (None, None, None)
    return sys.exc_info() if given else (None, None, None)
