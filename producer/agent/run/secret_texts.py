"""List the secrets of a configuration, which logs and monitoring must not show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from ...model.options import options_of
from ...text.printable import HIDDEN, LEAST_SECRET
from .blueprint import Blueprint, Part

#: Minimum characters of a secret in a table, such as one of HTTP headers, which also has usual words.
_LEAST_IN_TABLE = 8


def secret_texts(blueprint: Blueprint) -> dict[str, str]:
    """Return the secrets: values of the environment and of files, and values of secret options.

    :returns: the text to show, by secret.
    """
    own = {text: HIDDEN for part in _parts(blueprint) for text in _secrets_of(part)}
    return own | dict(blueprint.config.hidden)


def _parts(blueprint: Blueprint) -> Iterator[Part]:
    yield from blueprint.channels.values()
    for source in blueprint.sources.values():
        yield from (source.source, *source.interceptors, source.selector)
    for sink in blueprint.sinks.values():
        yield from (sink.processor, *sink.sinks)


def _secrets_of(part: Part) -> Iterator[str]:
    for name, option in options_of(type(part.options)).items():
        if option.secret:
            yield from _texts_of(getattr(part.options, name))


def _texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        yield from (text for each in value for text in _texts_of(each) if len(text) >= _LEAST_IN_TABLE)
    elif isinstance(value, str):
        yield from (text for text in (value, _password(value)) if len(text) >= LEAST_SECRET)


def _password(url: str) -> str:
    """Return the password of a URL; empty for none."""
    try:
        return unquote(urlsplit(url).password or "")
    except ValueError:  # not a URL
        return ""
