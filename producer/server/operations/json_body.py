"""Request bodies in JSON."""

from __future__ import annotations

import json
from typing import Any

from ..errors import ApiError


def parse_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    :raises ApiError: ``PostBodyInvalid``, the body is not a JSON object; ``ParameterInvalid``, it contains text that is
        not Unicode.
    """
    content = _parse(body)
    if not isinstance(content, dict):
        raise ApiError("PostBodyInvalid", "the body is not a JSON object")
    return content


def parse_json_list(body: bytes) -> list[Any]:
    """Parse a JSON array.

    :raises ApiError: ``PostBodyInvalid``, the body is not a JSON array; ``ParameterInvalid``, it contains text that is
        not Unicode.
    """
    content = _parse(body)
    if not isinstance(content, list):
        raise ApiError("PostBodyInvalid", "the body is not a JSON array")
    return content


def _parse(body: bytes) -> Any:
    try:
        content = json.loads(body)
        # Python reads NaN and Infinity, which are not JSON and must not be in an answer.
        text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise ApiError("PostBodyInvalid", f"the body is not JSON: {error}") from error
    _check_unicode(text)
    return content


def _check_unicode(text: str) -> None:
    # JSON can write half of a surrogate pair, which is not text: neither the store nor an answer can hold it.
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        message = f"a text in the body contains {half}, half of a surrogate pair: send Unicode"
        raise ApiError("ParameterInvalid", message) from error
