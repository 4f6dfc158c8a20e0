"""Names of projects, logstores and consumer groups."""

from __future__ import annotations

import re
from typing import Any

from ..errors import ApiError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def check_name(kind: str, name: Any) -> str:
    """Return ``name`` if it is valid for a project, a logstore or a consumer group.

    :raises ApiError: ``ParameterInvalid``.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ApiError(
            "ParameterInvalid",
            f"{str(name)[:140]!r} is no {kind} name: use 1 to 128 letters, digits, '-', '_' and '.', and no sign first",
        )
    return name
