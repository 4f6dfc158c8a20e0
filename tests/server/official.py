"""The official clients against an embedded server, each in a process of its own.

The server is their HTTP proxy (:mod:`tests.server.official_sdk`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from producer.server import LogHubServer

Step = tuple[str, dict[str, Any]]


def official_sdk(
    server: LogHubServer,
    *steps: Step,
    sign_version: str = "v1",
    access_key_id: str | None = None,
    access_key_secret: str | None = None,
    security_token: str | None = None,
) -> list[Any]:
    """Run ``steps`` with the official ``aliyun-log-python-sdk`` and return their results in order.

    :param steps: a verb of :mod:`tests.server.official_sdk` and its arguments, such as ``("pull", {"project": …,
        "logstore": …})``.
    :raises RuntimeError: a step failed; the error has status, code and message.
    """
    results = official_sdk_outcomes(
        server,
        *steps,
        sign_version=sign_version,
        access_key_id=access_key_id or server.access_key_id,
        access_key_secret=access_key_secret or server.access_key_secret,
        security_token=security_token,
    )
    for (verb, _), result in zip(steps, results, strict=True):
        if "error" in result:
            raise RuntimeError(f"{verb} failed: {result['error']}")
    return [result["ok"] for result in results]


def official_sdk_outcomes(server: LogHubServer, *steps: Step, **identity: str | None) -> list[dict[str, Any]]:
    """Run ``steps`` and return ``{"ok": …}`` or ``{"error": [status, code, message]}`` for each of them."""
    return list(json.loads(run_program("official_sdk.py", server, json.dumps({**identity, "steps": steps}))))


def pull_with_official_sdk(server: LogHubServer, project: str, logstore: str) -> list[dict[str, Any]]:
    """Return all LogGroups of a logstore, read by the official SDK with ListShards, GetCursor and PullLogs.

    Each is ``{"shard", "topic", "source", "tags", "logs": [{"time", "time_ns", "contents": [[key, value], …]}, …]}``.
    """
    (groups,) = official_sdk(server, ("pull", {"project": project, "logstore": logstore}))
    return list(groups)


def run_program(name: str, server: LogHubServer, stdin: str) -> str:
    """Run a program of this folder with ``server`` as its HTTP proxy, and return its stdout."""
    environment = {key: value for key, value in os.environ.items() if key.lower() not in ("no_proxy", "all_proxy")}
    environment |= {"http_proxy": server.endpoint, "HTTP_PROXY": server.endpoint}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name(name))],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr}")
    return done.stdout
