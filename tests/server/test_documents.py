from __future__ import annotations

import re
from pathlib import Path

from producer.server import Limits
from producer.server.errors import STATUS_OF

TEXT = (Path(__file__).parents[2] / "docs" / "embedded-server.md").read_text()


def test_every_error_code_is_documented_with_its_status() -> None:
    """The table of errors has exactly the codes that the server answers with, each with its status."""
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", TEXT, re.MULTILINE)
    assert {code: int(status) for code, status in rows} == STATUS_OF


def test_the_documented_limits_are_those_of_the_code() -> None:
    """The table of limits states the defaults."""
    limits = Limits()
    assert (limits.raw_bytes, limits.pull_bytes) == (10 * 1024 * 1024, 10 * 1024 * 1024)
    assert f"| logs in a LogGroup | {limits.logs:,} |" in TEXT
    assert f"| time for a request to arrive whole | {limits.receive_seconds:g} s |" in TEXT
    assert f"| logs in one GetLogs | {limits.page_logs} |" in TEXT
    assert f"| {limits.pull_groups}, and 10 MiB before compression |" in TEXT
