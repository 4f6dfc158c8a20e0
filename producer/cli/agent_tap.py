"""The action ``producer agent tap``: a sample of the events that pass a running agent's source or sink."""

from __future__ import annotations

import argparse
import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from .agent_client import AgentAwayError, client_of
from .output import say, tell

#: Maximum bytes of a line of an answer.
_MOST_LINE = 1 << 20


def run(args: argparse.Namespace) -> int:
    """Print events as JSON lines until an interrupt or the limit; return the exit code.

    :raises AgentAwayError: the agent does not answer, or ends the answer.
    """
    client, shown, passed = client_of(args), 0, 0
    query = urlencode({"name": args.component, "rate": args.rate})
    try:
        with client.answer(f"/tap?{query}") as answer:
            for line in _lines(answer, client.where):
                passed += line.get("passed", 0)
                if "body" in line and shown != args.limit:
                    say(json.dumps(line, ensure_ascii=False), flush=True)
                    shown += 1
                if shown == args.limit:
                    return 0
    except KeyboardInterrupt:
        tell(f"producer agent: events shown: {shown} of about {max(shown, passed)}")
    return 0


def _lines(answer: http.client.HTTPResponse, where: str) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of an answer.

    :raises AgentAwayError: the answer ends.
    """
    while line := answer.readline(_MOST_LINE):
        yield json.loads(line)
    raise AgentAwayError(f"the agent at {where} has ended the tap: it stops, or its configuration has changed")
