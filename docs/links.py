"""A hook of MkDocs: what documents link to outside of docs/ is not part of the site."""

from __future__ import annotations

import re
from typing import Any

_UPWARDS = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(?:#[^)]*)?\)")
_INSIDE = {"README.md": "index.md"}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Name the file in place of such a link; the README's place is the first page's."""
    depth = page.file.src_uri.count("/")

    def replaced(match: re.Match[str]) -> str:
        text, upwards, target = match.groups()
        if upwards.count("../") <= depth:
            return match[0]
        if target in _INSIDE:
            return f"[{text}]({'../' * depth}{_INSIDE[target]})"
        return text if target.strip("`") == text.strip("`") else f"{text} (`{target}`)"

    return _UPWARDS.sub(replaced, markdown)
