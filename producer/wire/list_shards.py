"""The ListShards request: path and headers.

Source: LogHub protocol, Reading back.
"""

from __future__ import annotations

from urllib.parse import quote

from .put_logs import API_VERSION


def list_shards_path(logstore: str) -> str:
    """The path of the request, percent-encoded where the name needs it."""
    return f"/logstores/{quote(logstore, safe='')}/shards"


def list_shards_headers(host: str, user_agent: str) -> dict[str, str]:
    """The headers before the signature.

    :param host: the ``Host`` header, project included.
    """
    return {"Host": host, "User-Agent": user_agent, "x-log-apiversion": API_VERSION, "x-log-bodyrawsize": "0"}
