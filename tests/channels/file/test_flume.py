"""The table of Flume has a row for every test of its file channel."""

from collections import Counter

from tests.channels.test_flume import NAMED, ROW, TESTS, section

#: Number of tests of each of Flume's classes.
COUNTS = {
    "TestFileChannel": 19,
    "TestFileChannelRestart": 44,
    "TestFileChannelRollback": 3,
    "TestFileChannelErrorMetrics": 7,
    "TestLog": 19,
    "TestLogFile": 12,
    "TestFlumeEventQueue": 21,
    "TestEventQueueBackingStoreFactory": 14,
    "TestFileChannelEncryption": 14,
    "TestJCEFileKeyProvider": 2,
    "TestAESCTRNoPaddingProvider": 1,
    "TestCheckpoint": 1,
    "TestCheckpointRebuilder": 1,
    "TestEventUtils": 2,
    "TestFlumeEvent": 2,
    "TestFlumeEventPointer": 4,
    "TestLogRecord": 2,
    "TestTransactionEventRecordV3": 7,
    "TestTransactionIDOracle": 1,
    "TestWriteOrderOracle": 1,
    "TestIntegration": 1,
}


def test_every_test_of_flumes_file_channel_has_a_row() -> None:
    """Every test of Flume's file channel has one row, with existing tests here or a reason."""
    rows = ROW.findall(section("File channel", TESTS))
    assert Counter(name.partition(".")[0] for name, _ in rows) == COUNTS
    assert len({name for name, _ in rows}) == len(rows)
    assert [name for name, ours in rows if not NAMED.search(ours) and not ours.startswith("— ")] == []
