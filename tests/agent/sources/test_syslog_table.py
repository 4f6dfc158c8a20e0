"""The table of syslog variants in the documentation."""

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


@pytest.mark.parametrize(("message", "moment", "host"), _ROWS)
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
    assert len(_ROWS) > 15
