"""The variants of syslog that the documentation lists, and rarer ones."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from freezegun import freeze_time

from producer.agent.sources.syslog_events import SyslogParser
from producer.ship import line_times
from producer.ship.line_times import LineTimes
from producer.testing import ManualClock
from producer.wire.syslog import parse_syslog

_PAGE = Path(__file__).parents[3] / "docs" / "agent" / "sources" / "syslog.md"
_ROWS = re.findall(r"^\| `(<13>[^`]+)`[^|]*\| ([^|]+) \| ([^|]+) \|", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
#: Variants that the page names in words.
_RARE = [
    ("<13>Nov 1 22:14:15 box app: x", "`2024-11-01T22:14:15`", "`box`"),
    ("<13>Nov 11 22:14:15 app: x", "`2024-11-11T22:14:15`", "none"),
    ("<13>2023 Nov 11 22:14:15 box app: x", "`2023-11-11T22:14:15`", "`box`"),
    ("<13>Nov 11 22:14:15 2023 box app: x", "`2023-11-11T22:14:15`", "`box`"),
    ("<13>Nov 11 2023 22:14:15.123 UTC: %X-1: x", "`2023-11-11T22:14:15.123`", "none"),
    ("<13>Nov 11 22:14:15 +02:00 box app: x", "`2024-11-11T20:14:15`", "`box`"),
    ("<13>2023-11-11 22:14:15 box app: x", "`2023-11-11T22:14:15`", "`box`"),
    ("<13>Nov 11 22:14:15 level=info msg=x", "`2024-11-11T22:14:15`", "none"),
    ("<13>Nov 11 22:14:15 CET box app: x", "`2024-11-11T22:14:15`", "`CET`"),
    ("<13>1 - - app - - - x", "none", "none"),
]
_NOW = datetime(2024, 11, 26, 12, tzinfo=UTC)


def _plain(cell: str) -> str | None:
    return None if cell == "none" else cell.strip("`")


def _milliseconds(text: str | None) -> str | None:
    return text and str(int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000))


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch):
    with monkeypatch.context() as patch, freeze_time(_NOW):
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()
    line_times._reader.cache_clear()


@pytest.mark.parametrize(("message", "moment", "host"), [*_ROWS, *_RARE])
def test_source_and_ship_read_a_variant_as_the_documents_say(message, moment, host):
    """The source and ship's parser find the time and the host that the table states for each message."""
    ((headers, _),) = SyslogParser((), ManualClock(_NOW.timestamp())).batch([message.encode()]).events()
    expected = _milliseconds(_plain(moment))
    assert (headers.get("timestamp"), headers.get("host")) == (expected, _plain(host))
    fields = parse_syslog(message)
    assert fields.get("host") == _plain(host)
    told = LineTimes("UTC").reader()(fields["time"]) if "time" in fields else None
    assert (told and str(told // 1_000_000)) == expected


def test_the_documents_have_a_table_of_variants():
    """The table is found on its page, so the test above has rows."""
    assert len(_ROWS) > 6
