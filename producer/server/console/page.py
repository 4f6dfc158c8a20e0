"""The console's page: static files that connect to this server only.

The files contain no data and are public. Where the console needs a key, the page asks for it.
"""

from __future__ import annotations

from importlib.resources import files

from ..messages import Answer
from ..service import Service
from .plain import PlainHandler, PlainRequest

#: ``dom`` has helpers, ``logs`` shows one log, ``search`` is the search view, ``console`` combines the views.
SCRIPTS = ("console.js", "dom.js", "logs.js", "search.js")

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def file(name: str, kind: str) -> PlainHandler:
    """Return the handler that serves one of the files.

    :param name: the file's name.
    :param kind: its media type.
    """
    content = files(__package__).joinpath(name).read_bytes()  # works in a zip file, too
    headers = {
        "Content-Type": f"{kind}; charset=utf-8",
        "Content-Security-Policy": _POLICY,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
    }

    async def answer(_service: Service, _request: PlainRequest) -> Answer:
        return Answer(headers=headers, body=content)

    return answer
