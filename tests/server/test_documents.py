import re
from pathlib import Path

from producer.server import Limits
from producer.server.errors import STATUS_OF

KIB, MIB = 1024, 1024 * 1024
TEXT = (Path(__file__).parent / "protocol.md").read_text()


def test_every_error_code_is_documented_with_its_status() -> None:
    """The table of errors has exactly the codes of the server, each with its status."""
    documented = {}
    for codes, statuses in re.findall(r"^\| (`[\w`, ]+`) \| (\d{3}(?:, \d{3})*) \|", TEXT, re.MULTILINE):
        names, numbers = re.findall(r"\w+", codes), [int(number) for number in statuses.split(", ")]
        documented |= zip(names, numbers * len(names) if len(numbers) == 1 else numbers, strict=True)
    assert documented == STATUS_OF


def test_the_table_of_limits_has_the_defaults_of_the_code() -> None:
    """The table of limits has the defaults of the code."""
    limits = Limits()
    assert (limits.raw_bytes, limits.pull_bytes) == (10 * 1024 * 1024, 10 * 1024 * 1024)
    assert f"| logs in a LogGroup | {limits.logs:,} |" in TEXT
    assert f"| time for a request to arrive whole | {limits.receive_seconds:g} s |" in TEXT
    for row in (
        f"| a body without logs | {limits.json_bytes // KIB} KiB |",
        f"| logs in one GetLogs | {limits.page_logs}, and {limits.page_bytes // MIB} MiB of JSON |",
        f"| a query of GetLogs | {limits.query_chars:,} characters, {limits.query_words} words |",
        (
            f"| concurrent searches | {limits.searches}, and {limits.searches_waiting} in the queue,"
            f" each up to {limits.search_seconds:g} s |"
        ),
        f"| logs that one SQL statement reads | {limits.sql_rows:,} |",
        f"| bytes of the fields that it names, and of its memory | {limits.sql_bytes // MIB} MiB |",
        f"| rows of its result | {limits.sql_result_rows:,} |",
        f"| time for a search | {limits.search_seconds:g} s |",
        f"| time for a client to take an answer | {limits.send_seconds:g} s |",
        f"| idle time of a connection | {limits.keep_alive_seconds:g} s |",
        f"| concurrent connections | {limits.connections} |",
        f"| bodies and answers of all connections together | {limits.held_bytes // MIB} MiB |",
        f"| keys of a logstore whose sequence numbers are remembered | {limits.sequence_keys:,} |",
    ):
        assert row in TEXT
    assert f"| {limits.pull_groups}, and 10 MiB before compression |" in TEXT
