"""The calls of the official SDK against the embedded server, as protocol.md tells them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from producer.server import LogHubServer

from .official import run_program

TEXT = (Path(__file__).parent / "protocol.md").read_text()


def test_the_official_sdk_can_do_what_the_documentation_says() -> None:
    """Each call in the table does what it is for, the consumer library included, or is refused as the table says."""
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (works|refused with `(\w+)`)", TEXT, re.MULTILINE)
    documented = {name: code or None for names, _, code in rows for name in re.findall(r"\w+", names)}
    with LogHubServer(auto_create=False) as server:
        keys = {"access_key_id": server.access_key_id, "access_key_secret": server.access_key_secret}
        outcomes = json.loads(run_program("official_calls.py", server, json.dumps(keys)))
    assert documented == {name: error and error[1] for name, error in outcomes.items()}
