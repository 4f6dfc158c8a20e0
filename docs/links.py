"""A hook of MkDocs: what documents link to outside of docs/ is not part of the site."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)#]+)(?:#[^)]*)?\)")
_INSIDE = {"README.md": "index.md"}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Name the file in place of such a link; the README's place is the first page's."""

    def replaced(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        if target in _INSIDE:
            return f"[{text}]({'../' * page.file.src_uri.count('/')}{_INSIDE[target]})"
        return text if target.strip("`") == text.strip("`") else f"{text} (`{target}`)"

    return _OUTSIDE.sub(replaced, markdown)
