"""Resolve ``${env:X}`` and ``${file:/path}`` in a configuration's values, so that secrets stay out of the file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...text.printable import LEAST_SECRET
from ...text.small_files import read_text

_REFERENCE = re.compile(r"(\$?)\$\{(?:(env|file|sys):([^}]*)|(\w+)\[[^}]*)\}")
#: Maximum bytes of a file that is a value.
_MOST = 1 << 20


class References:
    """Replaces references, and records their values so that messages can hide them.

    :param unset: the text that replaces a reference that cannot be resolved; None to raise.
    """

    def __init__(self, unset: str | None = None) -> None:
        self.hidden: dict[str, str] = {}
        self._unset, self._failures = unset, dict[str, None]()

    def notes(self) -> Iterator[str]:
        """Yield a note of the references that could not be resolved."""
        if self._failures:
            yield f"{self._unset!r} stands for values that are not here: {'; '.join(self._failures)}"

    def resolve(self, value: Any) -> Any:
        """Return a value with all references replaced, also those in its lists and tables.

        ``$${env:X}`` stands for the text ``${env:X}``.

        :raises ValueError: if a reference cannot be resolved; the message has no content of a file.
        """
        if isinstance(value, str):
            return _REFERENCE.sub(self._replaced, value)
        if isinstance(value, list):
            return [self.resolve(item) for item in value]
        if isinstance(value, Mapping):
            return {name: self.resolve(item) for name, item in value.items()}
        return value

    def _replaced(self, match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        try:
            found = _value_of(match)
        except ValueError as error:
            if self._unset is None:
                raise
            self._failures[str(error)] = None
            return self._unset
        for part in (found, *found.split()):
            if len(part) >= LEAST_SECRET:
                self.hidden[part] = match[0]
        return found


def _value_of(match: re.Match[str]) -> str:
    _, scheme, what, _ = match.groups()
    if scheme == "env":
        return _of_environment(what)
    if scheme == "file":
        return read_text(Path(what), _MOST).rstrip("\r\n")
    if scheme == "sys":
        raise ValueError(f"{match[0]} is a Java system property, and the agent has none; use ${{env:…}}")
    raise ValueError(
        f"{match[0]} names a config filter of Flume, which is not supported; use ${{env:…}} or ${{file:…}}"
    )


def _of_environment(name: str) -> str:
    if name not in os.environ:
        raise ValueError(f"the environment variable {name} is not set")
    return os.environ[name]
