"""Native code finds the same syslog headers as the patterns."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.wire import syslog_headers
from producer.wire.splitters import split_headers
from producer.wire.syslog_headers import headers_of

_PARTS = st.sampled_from(
    [
        *(
            b"<34>",
            b"<007>",
            b"<192>",
            b"<",
            b"1 ",
            b"12 ",
            b" ",
            b":",
            b"-",
            b"Z",
            b" UTC",
            b" +0200",
            b" 2024",
            b"\xff",
        ),
        *(b"Oct 11 22:14:15", b"Oct  1 2024 2:14:15.5", b"2024 Oct 1 22:14:15", b"2024-10-11T22:14:15,123456789"),
        *(b"2024-10-11 22:14:15", b" box", b" su:", b" su[1]:", b"\xc3\xa9", b"\n", b"\0", b"\x1c", b"\x0b", b"[x]"),
    ]
)
_MESSAGES = st.lists(st.lists(_PARTS, max_size=9).map(b"".join), min_size=1, max_size=5)


@pytest.mark.skipif(split_headers is None, reason="nothing is compiled")
@example([b"<34>2024-10-11T22:14:15Z b\xc3\xa9x text", b"", b"<34>"])
@given(_MESSAGES)
def test_all_messages_of_a_block_at_once_have_the_same_headers_as_each_message_by_itself(messages: list[bytes]) -> None:
    """All messages of a block at once have the same headers as each message by itself, for any bytes."""
    found = [list(map(list, read(messages))) for read in (syslog_headers._at_once, syslog_headers._one_by_one)]
    assert found[0] == found[1]


def test_a_message_without_a_priority_is_all_text() -> None:
    """A message without a valid priority has no header, whatever time it has."""
    messages = [b"Oct 11 22:14:15 box su: x", b"<192>Oct 11 22:14:15 box su: x"]
    found = headers_of(messages)
    assert [list(column) for column in found[:4]] == [[None, None]] * 4
    assert found.rests == b"".join(messages)
    assert list(found.ends) == [25, 55]
