"""``${env:X}`` and ``${file:/path}`` in the values of a configuration: what is secret need not stand in it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_REFERENCE = re.compile(r"(\$?)\$\{(?:(env|file|sys):([^}]*)|(\w+)\[[^}]*)\}")
#: Bytes of a file that is a value.
_MOST = 1 << 20


def resolve(value: Any) -> Any:
    """A value with all references replaced, also those in its lists and tables.

    ``$${env:X}`` is ``${env:X}`` itself.

    :raises ValueError: one cannot be; says why, and not what is in a file.
    """
    if isinstance(value, str):
        return _REFERENCE.sub(_replaced, value)
    if isinstance(value, list):
        return [resolve(item) for item in value]
    if isinstance(value, Mapping):
        return {name: resolve(item) for name, item in value.items()}
    return value


def _replaced(match: re.Match[str]) -> str:
    escaped, scheme, what, _ = match.groups()
    if escaped:
        return match[0][1:]
    if scheme == "env":
        return _of_environment(what)
    if scheme == "file":
        return _of_file(what)
    if scheme == "sys":
        raise ValueError(f"{match[0]} is a property of a Java process: there is none here; use ${{env:…}}")
    raise ValueError(f"{match[0]} asks a filter of Flume: there are none here; use ${{env:…}} or ${{file:…}}")


def _of_environment(name: str) -> str:
    if name not in os.environ:
        raise ValueError(f"the environment has no {name}")
    return os.environ[name]


def _of_file(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST + 1)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > _MOST:
        raise ValueError(f"{path} has more than {_MOST} bytes")
    try:
        return content.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8") from error
