"""The page of the console: a few files that are sent as they are, and reach nothing but this server.

They are for everybody, since they tell nothing: where the console wants a key, the page asks for it.
"""

from __future__ import annotations

from importlib.resources import files

from ..messages import Answer
from ..service import Service
from .plain import PlainHandler, PlainRequest

#: ``dom`` is what all of it uses, ``logs`` one log, ``search`` the search; ``console`` puts the views together.
SCRIPTS = ("console.js", "dom.js", "logs.js", "search.js")

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def file(name: str, kind: str) -> PlainHandler:
    """What answers one of the files.

    :param kind: its media type.
    """
    content = files(__package__).joinpath(name).read_bytes()  # it may be in a zip file
    headers = {
        "Content-Type": f"{kind}; charset=utf-8",
        "Content-Security-Policy": _POLICY,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
    }

    async def answer(_service: Service, _request: PlainRequest) -> Answer:
        return Answer(headers=headers, body=content)

    return answer
