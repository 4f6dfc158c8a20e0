"""An embedded LogHub for development and tests: real HTTP, real signatures, real limits, and faults on demand.

::

    from producer.server import LogHubServer

    with LogHubServer() as server:
        ...  # send to server.endpoint with server.access_key_id and server.access_key_secret
        server.logs("my-project", "app-log")

It needs the extra ``server``: ``pip install '.[server]'`` in a clone. Its packages are imported with the first name
that is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .auth import AccessKey
    from .errors import ForkedServerError, ServerStartError
    from .journal import RequestRecord
    from .limits import Limits
    from .loghub_server import LogHubServer
    from .store.log_groups import StoredLog, StoredLogGroup

_HOME_OF = {
    "AccessKey": "auth",
    "ForkedServerError": "errors",
    "Limits": "limits",
    "LogHubServer": "loghub_server",
    "RequestRecord": "journal",
    "ServerStartError": "errors",
    "StoredLog": "store.log_groups",
    "StoredLogGroup": "store.log_groups",
}
_EXTRA = ("cramjam", "google", "h11", "prometheus_client", "starlette", "uvicorn")

__all__ = [
    "AccessKey",
    "ForkedServerError",
    "Limits",
    "LogHubServer",
    "RequestRecord",
    "ServerStartError",
    "StoredLog",
    "StoredLogGroup",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in _EXTRA:
            raise
        package = "protobuf" if module == "google" else module
        from ..text.extras import how_to_install  # noqa: PLC0415  # only for an error

        raise ImportError(
            f"the embedded LogHub needs {package}, which is not installed: {how_to_install('server')}"
        ) from error
