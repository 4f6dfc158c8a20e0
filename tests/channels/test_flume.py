"""``docs/migrate/flume.md`` is true about defaults, and ``flume.md`` beside this file about our tests."""

import re
from pathlib import Path

from producer.agent.flow.channels import FileChannelBuilder, MemoryChannelBuilder
from tests.support.named_tests import missing_tests

DOCUMENT = Path(__file__).parents[2] / "docs" / "migrate" / "flume.md"
TESTS = Path(__file__).parent / "flume.md"
NAMED = re.compile(r"`([a-z_/]+\.py::\w+)`")
ROW = re.compile(r"^\| `(Test\w+\.\w+)` \| (.*) \|$", re.MULTILINE)

#: Number of tests of each of Flume's classes.
COUNTS = {
    "TestMemoryChannel": 14,
    "TestMemoryChannelTransaction": 4,
    "TestMemoryChannelConcurrency": 3,
    "TestBasicChannelSemantics": 24,
    "TestSpillableMemoryChannel": 14,
}

#: Flume 1.11's test classes of channels, sources, interceptors, selectors, processors and sinks, except for sinks and
#: channels of other systems that this package does not have.
CLASSES = re.findall(
    r"\w+",
    """
    RemoveHeaderInterceptorTest SinkProcessorFactoryTest TestAESCTRNoPaddingProvider
    TestAbstractPollableSource TestAvroEventDeserializer TestAvroEventSerializer TestAvroSink TestAvroSource
    TestBLOBHandler TestBasicChannelSemantics TestBasicFunctionality TestBasicSourceSemantics
    TestBodyTextEventSerializer TestBucketPath TestBucketWriter TestBufferedLineReader
    TestCensoringInterceptor TestChannelProcessor TestChannelUtils TestCheckpoint TestCheckpointRebuilder
    TestDefaultSinkFactory TestDefaultSourceFactory TestDurablePositionTracker
    TestEventQueueBackingStoreFactory TestEventUtils TestExecSource TestFailoverSinkProcessor TestFileChannel
    TestFileChannelEncryption TestFileChannelErrorMetrics TestFileChannelFormatRegression
    TestFileChannelRestart TestFileChannelRollback TestFlumeEvent TestFlumeEventAvroEventSerializer
    TestFlumeEventPointer TestFlumeEventQueue TestHDFSCompressedDataStream TestHDFSEventSink
    TestHDFSEventSinkOnMiniCluster TestHTTPSource TestHeaderAndBodyTextEventSerializer TestHostInterceptor
    TestHttpSink TestHttpSinkIT TestIRCSink TestIntegration TestJCEFileKeyProvider TestJSONHandler
    TestKafkaSink TestKafkaSource TestLegacyAvroSource TestLineDeserializer TestLoadBalancingChannelSelector
    TestLoadBalancingSinkProcessor TestLog TestLogFile TestLogRecord TestLoggerSink TestMemoryChannel
    TestMemoryChannelConcurrency TestMemoryChannelTransaction TestMultiplexingChannelSelector
    TestMultiportSyslogTCPSource TestNetcatSource TestNetcatUdpSource TestOffsetsAndMigration
    TestParseAsFlumeEvent TestPartitions TestPollableSourceRunner TestRegexExtractorInterceptor
    TestRegexExtractorInterceptorMillisSerializer TestRegexExtractorInterceptorPassThroughSerializer
    TestRegexFilteringInterceptor TestReliableSpoolingFileEventReader TestReplicatingChannelSelector
    TestResettableFileInputStream TestRollback TestRollingFileSink TestScribeSource
    TestSearchAndReplaceInterceptor TestSequenceFileSerializerFactory TestSequenceGeneratorSource
    TestSourceConfiguration TestSpillableMemoryChannel TestSpoolDirectorySource TestSpoolingFileLineReader
    TestStaticInterceptor TestStressSource TestSyslogAvroEventSerializer TestSyslogParser TestSyslogTcpSource
    TestSyslogUdpSource TestSyslogUtils TestTaildirEventReader TestTaildirMatcher TestTaildirSource
    TestThriftLegacySource TestThriftSink TestThriftSource TestTimestampInterceptor
    TestTransactionEventRecordV2 TestTransactionEventRecordV3 TestTransactionIDOracle TestTwitterSource
    TestUseRawLocalFileSystem TestWriteOrderOracle
""",
)


def section(title: str, document: Path) -> str:
    """Return the part of a document below a heading."""
    return document.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_test_that_the_document_names_exists() -> None:
    """Every test named in the document exists."""
    named = NAMED.findall(TESTS.read_text())
    assert len(named) > 40
    assert missing_tests(named) == []


def test_every_test_of_flumes_memory_channels_has_a_row() -> None:
    """Every test of Flume's memory channels has one row, with a test here."""
    rows = ROW.findall(section("Memory channel", TESTS))
    assert len({name for name, _ in rows}) == len(rows)
    for kind, count in COUNTS.items():
        assert sum(name.startswith(f"{kind}.") for name, _ in rows) == count, kind
    assert [name for name, ours in rows if not NAMED.search(ours)] == []


def test_every_class_of_flumes_tests_is_named() -> None:
    """Every test class of Flume is listed, with its counterpart or a reason."""
    assert [name for name in CLASSES if f"`{name}" not in TESTS.read_text()] == []


def test_the_documented_defaults_are_the_codes() -> None:
    """The documented defaults are the code's."""
    memory, file = MemoryChannelBuilder.Options(), FileChannelBuilder.Options()
    assert (memory.capacity, memory.byte_capacity) == (None, 64 << 20)
    assert (file.capacity, file.segment_size, file.minimum_free_space) == (None, 64 << 20, 64 << 20)
    text = section("Channels", DOCUMENT)
    for row in ("heap | no limit, 64 MiB |", "1,000,000 | no limit |", "`minimum_free_space`: 64 MiB each |"):
        assert row in text
