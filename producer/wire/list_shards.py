"""The ListShards request: path and headers.

Source: LogHub protocol, Reading back.
"""

from __future__ import annotations

from urllib.parse import quote

from .put_logs import API_VERSION


def list_shards_path(logstore: str) -> str:
    """Return the path of the request, with the name percent-encoded."""
    return f"/logstores/{quote(logstore, safe='')}/shards"


def list_shards_headers(host: str, user_agent: str) -> dict[str, str]:
    """Return the headers, without the signature.

    :param host: the ``Host`` header, with the project.
    """
    return {"Host": host, "User-Agent": user_agent, "x-log-apiversion": API_VERSION, "x-log-bodyrawsize": "0"}
