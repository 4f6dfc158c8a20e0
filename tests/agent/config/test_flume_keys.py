"""The keys of Flume's user guide, each with the guide's value or another valid one."""

from __future__ import annotations

import pytest

from producer.agent import AgentConfigError
from producer.agent.config import parse_flume
from producer.agent.run.blueprint import draw
from producer.agent.run.convert import convert

_TLS = """ssl = false
keystore = /k.jks
keystore-password = x
keystore-type = JKS
exclude-protocols = SSLv3
include-protocols = TLSv1.2
exclude-cipher-suites = A
include-cipher-suites = B
"""
#: Keys that are accepted, by kind and type.
_KEYS = {
    "sources avro": "bind = 0.0.0.0\nport = 1\nthreads = 4\ncompression-type = none\nipFilter = false\n"
    f"ipFilterRules = deny:ip:*\nmaxIoWorkers = 2\n{_TLS}",
    "sources thrift": "bind = 0.0.0.0\nport = 1\nthreads = 4\nkerberos = false\nagent-principal = p\n"
    f"agent-keytab = k\nprotocol = binary\n{_TLS}",
    "sources exec": "command = tail -F /x\nshell = /bin/sh -c\nrestartThrottle = 10000\nrestart = false\n"
    "logStdErr = false\nbatchSize = 20\nbatchTimeout = 3000\ncharset = UTF-8",
    "sources spooldir": "spoolDir = /x\nfileSuffix = .COMPLETED\ndeletePolicy = never\nfileHeader = false\n"
    "fileHeaderKey = file\nbasenameHeader = false\nbasenameHeaderKey = basename\nincludePattern = ^.*$\n"
    "ignorePattern = ^$\ntrackerDir = .flumespool\ntrackingPolicy = rename\nconsumeOrder = oldest\npollDelay = 500\n"
    "recursiveDirectorySearch = false\nmaxBackoff = 4000\nbatchSize = 100\ninputCharset = UTF-8\n"
    "decodeErrorPolicy = FAIL\ndeserializer = LINE\ndeserializer.maxLineLength = 2048\n"
    "deserializer.outputCharset = UTF-8\nbufferMaxLines = 9\nbufferMaxLineLength = 5000",
    "sources TAILDIR": "filegroups = g\nfilegroups.g = /x/a.*\npositionFile = /p\nheaders.g.k = v\n"
    "byteOffsetHeader = false\nskipToEnd = false\nidleTimeout = 120000\nwritePosInterval = 3000\nbatchSize = 100\n"
    "maxBatchCount = 9223372036854775807\nbackoffSleepIncrement = 1000\nmaxBackoffSleep = 5000\n"
    "cachePatternMatching = true\nfileHeader = false\nfileHeaderKey = file",
    "sources org.apache.flume.source.kafka.KafkaSource": "kafka.bootstrap.servers = b:1\n"
    "kafka.consumer.group.id = flume\nkafka.topics = a,b\nbatchSize = 1000\nbatchDurationMillis = 1000\n"
    "backoffSleepIncrement = 1000\nmaxBackoffSleep = 5000\nuseFlumeEventFormat = false\nsetTopicHeader = true\n"
    "topicHeader = topic\nkafka.consumer.security.protocol = PLAINTEXT\nkafka.consumer.max.poll.records = 5\n"
    "kafka.consumer.auto.offset.reset = latest\nmigrateZookeeperOffsets = false",
    "sources netcat": f"bind = ::\nport = 1\nmax-line-length = 512\nack-every-event = true\nencoding = utf-8\n{_TLS}",
    "sources netcatudp": "bind = ::\nport = 1\nremoteAddressHeader = a",
    "sources seq": "totalEvents = 9\nbatchSize = 1",
    "sources syslogtcp": f"host = ::\nport = 1\neventSize = 2500\nkeepFields = none\nclientIPHeader = i\n{_TLS}",
    "sources multiport_syslogtcp": "host = ::\nports = 1 2\neventSize = 2500\nkeepFields = none\nportHeader = p\n"
    "clientIPHeader = i\ncharset.default = UTF-8\ncharset.port.1 = utf8\nbatchSize = 100\nreadBufferSize = 1024\n"
    f"numProcessors = 4\n{_TLS}",
    "sources syslogudp": "host = ::\nport = 1\nkeepFields = false\nclientIPHeader = i\nmaxsize = 65536",
    "sources http": "bind = ::\nport = 1\nhandler = org.apache.flume.source.http.JSONHandler\n"
    "HttpConfiguration.sendServerVersion = false\nServerConnector.idleTimeout = 300\n"
    f"QueuedThreadPool.maxThreads = 9\nSslContextFactory.protocol = x\nenableSSL = false\n{_TLS}",
    "sources HTTP": "port = 1\nhandler = org.apache.flume.sink.solr.morphline.BlobHandler\n"
    "handler.maxBlobLength = 1000\nhandler.mandatoryParameters = a,b",
    "sources org.apache.flume.source.StressSource": "size = 500\nmaxTotalEvents = -1\nmaxSuccessfulEvents = -1\n"
    "batchSize = 1\nmaxEventsPerSecond = 0",
    "sinks hdfs": "hdfs.path = /x\nhdfs.filePrefix = FlumeData\nhdfs.fileSuffix = .a\nhdfs.inUsePrefix = _\n"
    "hdfs.inUseSuffix = .tmp\nhdfs.emptyInUseSuffix = false\nhdfs.rollInterval = 30\nhdfs.rollSize = 1024\n"
    "hdfs.rollCount = 10\nhdfs.idleTimeout = 0\nhdfs.batchSize = 100\nhdfs.fileType = DataStream\n"
    "hdfs.maxOpenFiles = 5000\nhdfs.minBlockReplicas = 1\nhdfs.writeFormat = Text\nhdfs.threadsPoolSize = 10\n"
    "hdfs.rollTimerPoolSize = 1\nhdfs.round = false\nhdfs.roundValue = 1\nhdfs.roundUnit = second\n"
    "hdfs.timeZone = UTC\nhdfs.useLocalTimeStamp = false\nhdfs.closeTries = 0\nhdfs.retryInterval = 180\n"
    "hdfs.callTimeout = 30000\nserializer = TEXT",
    "sinks logger": "maxBytesToLog = 16",
    "sinks avro": "hostname = h\nport = 1\nbatch-size = 100\nconnect-timeout = 20000\nrequest-timeout = 20000\n"
    "reset-connection-interval = 0\ncompression-type = none\ncompression-level = 6\nmaxIoWorkers = 2\n"
    "ssl = false\ntrust-all-certs = false\ntruststore = /t\ntruststore-password = x\ntruststore-type = JKS\n"
    "exclude-protocols = SSLv3",
    "sinks thrift": "hostname = h\nport = 1\nbatch-size = 100\nconnect-timeout = 20000\nrequest-timeout = 20000\n"
    "connection-reset-interval = 0\nssl = false\ntruststore = /t\ntruststore-password = x\ntruststore-type = JKS\n"
    "exclude-protocols = SSLv3\nkerberos = false\nclient-principal = p\nclient-keytab = k\nserver-principal = s",
    "sinks file_roll": "sink.directory = /x\nsink.pathManager = DEFAULT\nsink.pathManager.extension = a\n"
    "sink.pathManager.prefix = b\nsink.rollInterval = 30\nsink.serializer = TEXT\nsink.batchSize = 100",
    "sinks null": "batchSize = 100",
    "sinks org.apache.flume.sink.kafka.KafkaSink": "kafka.bootstrap.servers = b:1\nkafka.topic = t\n"
    "flumeBatchSize = 100\nkafka.producer.acks = 1\nuseFlumeEventFormat = false\ndefaultPartitionId = 0\n"
    "partitionIdHeader = p\nallowTopicOverride = true\ntopicHeader = topic\nkafka.producer.linger.ms = 1\n"
    "kafka.producer.compression.type = snappy\nkafka.producer.security.protocol = PLAINTEXT\n"
    "kafka.producer.buffer.memory = 1000",
    "sinks http": "endpoint = http://h/\nconnectTimeout = 5000\nrequestTimeout = 5000\ncontentTypeHeader = text/plain\n"
    "acceptHeader = text/plain\ndefaultBackoff = true\ndefaultRollback = true\ndefaultIncrementMetrics = false\n"
    "backoff.503 = false\nrollback.2XX = false\nincrementMetrics.200 = true",
}
#: The required keys of each type.
_LEAST = {
    "sources avro": "bind = ::\nport = 1",
    "sources thrift": "bind = ::\nport = 1",
    "sources syslogtcp": "port = 1",
    "sources http": "port = 1",
    "sources org.apache.flume.source.kafka.KafkaSource": "kafka.bootstrap.servers = b:1\nkafka.topics = t",
    "sinks hdfs": "hdfs.path = /x\nhdfs.fileType = DataStream",
    "sinks avro": "hostname = h\nport = 1",
    "sinks org.apache.flume.sink.kafka.KafkaSink": "kafka.bootstrap.servers = b:1",
}
#: Keys that are refused, and words of the message.
_TOLD = {
    "sources avro": [("ipFilter = true", "bind"), ("ssl = true", "PEM"), ("keystore = /k\nssl = true", "PEM")],
    "sources thrift": [
        ("kerberos = true", "Kerberos is not supported"),
        ("truststore = /t\nssl = true", "client_authorities"),
    ],
    "sources syslogtcp": [("clientHostnameHeader = h", "clientIPHeader")],
    "sources http": [
        ("handler = org.example.MyHandler", "must be one of json"),
        ("handler.nickname = x", "custom handlers"),
        ("enableSSL = true", "PEM"),
        ("SslContextFactory.x = y\nssl = true", "PEM"),
    ],
    "sources org.apache.flume.source.kafka.KafkaSource": [
        ("useFlumeEventFormat = true", "not read"),
        ("zookeeperConnect = z:1", "kafka.bootstrap.servers"),
        ("kafka.consumer.no.such.thing = z", "No such configuration property"),
    ],
    "sinks hdfs": [
        ("hdfs.kerberosPrincipal = p", "HDFS client"),
        ("hdfs.fileType = SequenceFile", "must be DataStream or CompressedStream"),
    ],
    "sinks avro": [("truststore = /t\nssl = true", "authorities")],
    "sinks org.apache.flume.sink.kafka.KafkaSink": [("kafka.producer.acks = some", "refused by librdkafka")],
}


def _file(kind: str, name: str, keys: str) -> str:
    """Return an agent with one component of a type."""
    source = "a1.sources.r1.type = seq\n" if kind != "sources" else ""
    sink = "a1.sinks.k1.type = null\n" if kind != "sinks" else ""
    where = "a1.sources.r1" if kind == "sources" else "a1.sinks.k1"
    given = "".join(f"{where}.{line}\n" for line in f"type = {name}\n{keys}".splitlines() if line)
    return (
        "a1.sources = r1\na1.channels = c1\na1.sinks = k1\na1.channels.c1.type = memory\n"
        f"a1.sources.r1.channels = c1\na1.sinks.k1.channel = c1\n{source}{sink}{given}"
    )


@pytest.mark.parametrize("named", _KEYS)
def test_each_key_of_flumes_guide_is_understood(named, tmp_path):
    """With the guide's value a file is valid, and so is its conversion."""
    kind, name = named.split()
    text = _file(kind, name, _KEYS[named])
    draw(parse_flume(text))
    path = tmp_path / "flume.properties"
    path.write_text(text)
    assert convert(path)[2] == ()


@pytest.mark.parametrize(("named", "lines", "words"), [(n, *each) for n, told in _TOLD.items() for each in told])
def test_an_unsupported_key_such_as_a_key_store_or_a_filter_is_reported_once(named, lines, words):
    """An unsupported key, such as a key store or a filter, is reported once, with what to write instead."""
    kind, name = named.split()
    key = lines.split()[0]
    with pytest.raises(AgentConfigError) as caught:
        draw(parse_flume(_file(kind, name, f"{_LEAST[named]}\n{lines}")))
    (told,) = [each for each in caught.value.problems if words in each.message and key.startswith(_last(each.key))]
    assert "did you mean" not in told.message
    assert "there are" not in told.message


def _last(key):
    """Return a key without its component."""
    return key.removeprefix("a1.sources.r1.").removeprefix("a1.sinks.k1.")


@pytest.mark.parametrize("milliseconds", ["500", "0"])
def test_a_file_that_flume_closes_sooner_is_closed_after_a_second(milliseconds):
    """An idle time below one second becomes one second, the wait for the end of a last line."""
    keys = f"filegroups = g\nfilegroups.g = /x/.*\nidleTimeout = {milliseconds}"
    assert draw(parse_flume(_file("sources", "TAILDIR", keys))).sources["r1"].source.options.idle_timeout == 1.0


def test_kafka_keys_of_flume_1_6_count_unless_the_newer_ones_are_given_too():
    """Kafka keys of Flume 1.6 count unless the newer ones are given, too."""
    sink = "brokerList = b:1\ntopic = t\nbatchSize = 7\nrequiredAcks = -1\nflumeBatchSize = 8"
    config = parse_flume(_file("sinks", "org.apache.flume.sink.kafka.KafkaSink", sink))
    assert config.sinks["k1"].options == {
        "bootstrap_servers": "b:1",
        "topic": "t",
        "batch_size": 8,
        "config": {"acks": "-1"},
    }
    source = "kafka.bootstrap.servers = b:1\ntopic = t\ngroupId = g"
    config = parse_flume(_file("sources", "org.apache.flume.source.kafka.KafkaSource", source))
    assert (config.sources["r1"].options["topics"], config.sources["r1"].options["group_id"]) == (["t"], "g")


_GROUP = "a1.sinks = k1 k2\na1.sinks.k2.type = null\na1.sinks.k2.channel = c1\na1.sinkgroups = g1\n"
_GROUP += "a1.sinkgroups.g1.sinks = k1 k2\na1.sinkgroups.g1.processor.type = load_balance\n"


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        ("a1.sources.r1.selector.type = load_balancing\na1.sources.r1.selector.policy = ROUND_ROBIN", "round_robin"),
        ("a1.sources.r1.selector.type = load_balancing\na1.sources.r1.selector.policy = Random", "random"),
        (
            f"{_GROUP}a1.sinkgroups.g1.processor.selector = ROUND_ROBIN",
            "round_robin",
        ),
    ],
)
def test_names_of_policies_in_capitals_are_accepted_as_in_flume(lines, options):
    """Names of policies in capitals are accepted, as in Flume."""
    config = parse_flume(_file("sinks", "null", "") + lines)
    draw(config)
    source, groups = config.sources["r1"], list(config.groups.values())
    of = groups[0].options["selector"] if groups else source.selector.options["policy"]
    assert of == options


@pytest.mark.parametrize(("sink", "key"), [("file_roll", "sink.serializer"), ("hdfs", "serializer")])
def test_a_serializer_may_be_named_by_its_class_as_in_flume(sink, key):
    """A serializer may be named by its class, as in Flume."""
    name = "org.apache.flume.serialization.BodyTextEventSerializer$Builder"
    least = {"file_roll": "sink.directory = /x", "hdfs": _LEAST["sinks hdfs"]}[sink]
    config = parse_flume(_file("sinks", sink, f"{least}\n{key} = {name}"))
    draw(config)
    assert "text" in config.sinks["k1"].options.values()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("org.example.MySource", "Java classes do not run here"),
        ("org.apache.flume.source.avroLegacy.AvroLegacySource", "use http"),
        ("org.apache.flume.source.thriftLegacy.ThriftLegacySource", "use http"),
        ("execc", "did you mean 'exec'?"),
    ],
)
def test_custom_classes_unsupported_types_of_flume_and_misspelt_types_are_refused_with_advice(name, words):
    """Custom classes, unsupported types of Flume and misspelt types are refused with advice."""
    with pytest.raises(AgentConfigError, match="no such type") as caught:
        draw(parse_flume(_file("sources", name, "")))
    assert words in str(caught.value)
