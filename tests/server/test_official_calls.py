"""The calls of the official SDK against the embedded server, as protocol.md lists them."""

import json
import re
from pathlib import Path

import pytest

from producer.server import LogHubServer

from .official import run_program

TEXT = (Path(__file__).parent / "protocol.md").read_text()
CLIENTS = Path(__file__).parent / "clients"


def documented(client: str) -> dict[str, str | None]:
    """Return the documented outcomes of ``Go``'s, ``Java``'s or ``CLI``'s calls: None or an error code."""
    rows = re.findall(rf"^\| {client} \| ([^|]+) \| (?:works|refused with `(\w+)`)", TEXT, re.MULTILINE)
    return {name: code or None for names, code in rows for name in re.findall(r"`(\w+)`", names)}


def test_each_documented_call_works_the_consumer_library_included_or_is_refused_as_documented() -> None:
    """Each documented call works, the consumer library included, or is refused as documented."""
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (works|refused with `(\w+)`)", TEXT, re.MULTILINE)
    documented = {name: code or None for names, _, code in rows for name in re.findall(r"\w+", names)}
    with LogHubServer(auto_create=False) as server:
        keys = {"access_key_id": server.access_key_id, "access_key_secret": server.access_key_secret}
        outcomes = json.loads(run_program("official_calls.py", server, json.dumps(keys)))
    assert documented == {name: error and error[1] for name, error in outcomes.items()}


@pytest.mark.parametrize(
    ("client", "program", "call"),
    [
        ("Go", "go/main.go", r'^\t\t\{"(\w+)", func'),
        ("Java", "java/Calls.java", r'^ +call\("(\w+)"'),
        ("CLI", "cli/calls.py", r'\b(?:run|of|of_name)\("(\w+)"'),
    ],
)
def test_the_table_of_each_client_lists_exactly_the_calls_that_its_program_makes(
    client: str, program: str, call: str
) -> None:
    """The table of each client lists exactly the calls that its program makes; `make soak` runs the programs."""
    tried = re.findall(call, (CLIENTS / program).read_text(), re.MULTILINE)
    assert sorted(set(tried)) == sorted(documented(client))
