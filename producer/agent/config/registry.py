"""Find the class of a component's type: a built-in name, Flume's name, or an entry point.

A package adds a type by an entry point of the group ``loghub_producer.agent.sources`` (``.interceptors``,
``.selectors``, ``.sinks``, ``.channels``), whose name is the type. A module is imported when its type is first used.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .options import nearest

_GROUP = "loghub_producer.agent"
#: The name of a Java class.
_OF_JAVA = re.compile(r"[a-z]\w*(\.\w+)*\.[A-Z]\w*(\$\w+)?")
_JAVA = ": Java classes do not run here; `producer agent explain` lists the types, and a package may add others"

#: The module below ``producer.agent`` and the class of each component, by kind and type.
BUILT_IN: dict[str, dict[str, tuple[str, str]]] = {
    "sources": {
        "avro": ("sources.avro", "AvroSource"),
        "exec": ("sources.exec", "ExecSource"),
        "forward": ("sources.forward", "ForwardSource"),
        "gelf": ("sources.gelf", "GelfSource"),
        "http": ("sources.http", "HttpSource"),
        "journald": ("sources.journald", "JournaldSource"),
        "kafka": ("sources.kafka", "KafkaSource"),
        "loghub": ("sources.loghub", "LogHubSource"),
        "netcat": ("sources.netcat", "NetcatSource"),
        "netcatudp": ("sources.netcat", "NetcatUdpSource"),
        "otlp": ("sources.otlp", "OtlpSource"),
        "prometheus_remote_write": ("sources.prometheus_remote_write", "PrometheusRemoteWriteSource"),
        "s3": ("sources.s3", "S3Source"),
        "sequence": ("sources.sequence", "SequenceSource"),
        "spooldir": ("sources.spooldir", "SpoolDirectorySource"),
        "stress": ("sources.stress", "StressSource"),
        "syslog_tcp": ("sources.syslog", "SyslogTcpSource"),
        "syslog_udp": ("sources.syslog", "SyslogUdpSource"),
        "taildir": ("sources.taildir", "TaildirSource"),
        "thrift": ("sources.thrift", "ThriftSource"),
    },
    "channels": {
        "file": ("flow.channels", "FileChannelBuilder"),
        "memory": ("flow.channels", "MemoryChannelBuilder"),
        "spillable": ("flow.channels", "SpillableChannelBuilder"),
    },
    "selectors": {
        "load_balancing": ("selectors.load_balancing", "LoadBalancingSelector"),
        "multiplexing": ("selectors.multiplexing", "MultiplexingSelector"),
        "replicating": ("selectors.replicating", "ReplicatingSelector"),
    },
    "interceptors": {
        "dedupe": ("interceptors.dedupe", "DedupeInterceptor"),
        "host": ("interceptors.host", "HostInterceptor"),
        "kubernetes": ("interceptors.kubernetes", "KubernetesInterceptor"),
        "parse": ("interceptors.parse", "ParseInterceptor"),
        "python": ("interceptors.python", "PythonInterceptor"),
        "rate_limit": ("interceptors.rate_limit", "RateLimitInterceptor"),
        "redact": ("interceptors.redact", "RedactInterceptor"),
        "regex_extractor": ("interceptors.regex_extractor", "RegexExtractorInterceptor"),
        "regex_filter": ("interceptors.regex_filter", "RegexFilterInterceptor"),
        "remove_header": ("interceptors.remove_header", "RemoveHeaderInterceptor"),
        "sample": ("interceptors.sample", "SampleInterceptor"),
        "search_replace": ("interceptors.search_replace", "SearchReplaceInterceptor"),
        "static": ("interceptors.static", "StaticInterceptor"),
        "timestamp": ("interceptors.timestamp", "TimestampInterceptor"),
        "uuid": ("interceptors.uuid", "UuidInterceptor"),
    },
    "processors": {
        "default": ("processors", "DefaultProcessor"),
        "failover": ("processors", "FailoverProcessor"),
        "load_balance": ("processors", "LoadBalancingProcessor"),
    },
    "sinks": {
        "avro": ("sinks.avro", "AvroSink"),
        "elasticsearch": ("sinks.elasticsearch", "ElasticsearchSink"),
        "file_roll": ("sinks.file_roll", "FileRollSink"),
        "forward": ("sinks.forward", "ForwardSink"),
        "http": ("sinks.http", "HttpSink"),
        "kafka": ("sinks.kafka", "KafkaSink"),
        "logger": ("sinks.logger", "LoggerSink"),
        "loghub": ("sinks.loghub", "LogHubSink"),
        "loki": ("sinks.loki", "LokiSink"),
        "null": ("sinks.null", "NullSink"),
        "objects": ("sinks.objects", "ObjectsSink"),
        "otlp": ("sinks.otlp", "OtlpSink"),
        "thrift": ("sinks.thrift", "ThriftSink"),
    },
}

#: Flume's types, and the names of its classes without their kind, where they are not ours; in lower case.
_FLUME: dict[str, dict[str, str]] = {
    "sources": {
        "seq": "sequence",
        "sequencegenerator": "sequence",
        "spooldirectory": "spooldir",
        "syslogtcp": "syslog_tcp",
        "multiport_syslogtcp": "syslog_tcp",
        "multiportsyslogtcp": "syslog_tcp",
        "syslogudp": "syslog_udp",
    },
    "channels": {"spillablememory": "spillable"},
    "selectors": {"loadbalancing": "load_balancing"},
    "interceptors": {
        "regexextractor": "regex_extractor",
        "regexfiltering": "regex_filter",
        "removeheader": "remove_header",
        "searchandreplace": "search_replace",
    },
    "processors": {"loadbalancing": "load_balance"},
    "sinks": {"hdfs": "objects", "hdfsevent": "objects", "rollingfile": "file_roll"},
}
#: The ends of Flume's class names, where they are not the kind.
_ENDS = {"selectors": "channelselector", "processors": "sinkprocessor"}


#: Flume's types that are not supported, in lower case, and what to use instead.
INSTEAD: dict[str, dict[str, str]] = {
    "sources": {
        "legacy": "http",
        "jms": "kafka, or exec with a client of that queue",
        "scribe": "http, or a plugin",
        "twitter": "a plugin",
    },
    "channels": {
        "jdbc": "file, which survives a crash, too",
        "kafka": "file; or a kafka sink, followed by an agent with a kafka source",
        "pseudotxnmemory": "memory",
    },
    "sinks": {
        "hbase": "kafka or objects, or a plugin",
        "hbase2": "kafka or objects, or a plugin",
        "asynchbase": "kafka or objects, or a plugin",
        "hive": "objects, whose files Hive reads",
        "kitedataset": "objects",
        "morphlinesolr": "parse or regex_extractor before a plugin",
        "irc": "a plugin",
    },
    "interceptors": {"morphline": "parse, regex_extractor or python"},
}
#: Flume's classes whose names are not derived from their types.
_CLASSES = {
    "avrolegacysource": "legacy",
    "thriftlegacysource": "legacy",
    "datasetsink": "kitedataset",
    "pseudotxnmemorychannel": "pseudotxnmemory",
}


def instead_of(kind: str, name: str) -> str | None:
    """Return what to use instead of an unsupported type of Flume's; None for any other type.

    :param name: a name as :func:`canonical` takes it.
    """
    short, type_name = _in_flume(kind, name)
    return INSTEAD.get(kind, {}).get(_CLASSES.get(short, type_name))


def canonical(kind: str, name: str) -> str:
    """Return our name of a type.

    :param kind: ``sources``, ``channels`` and so on.
    :param name: our name, Flume's alias in any case, or Flume's class, with or without ``$Builder``.
    """
    names = name.lower(), *_in_flume(kind, name)
    candidates = [name, *names, *(_FLUME[kind].get(each, "") for each in names)]
    return next((each for each in candidates if each in BUILT_IN[kind]), name)


def _in_flume(kind: str, name: str) -> tuple[str, str]:
    """Return the name of a Flume class in lower case, without its package; and the type in it."""
    short = name.lower().removesuffix("$builder").rpartition(".")[2]
    return short, short.removesuffix(_ENDS.get(kind, kind[:-1]))


def class_of(kind: str, name: str) -> Any:
    """Return the class of a type.

    :raises LookupError: if there is none; the message suggests others.
    :raises ImportError: if it needs a package that is not installed.
    """
    found = BUILT_IN[kind].get(canonical(kind, name))
    if found is not None:
        module, attribute = found
        return getattr(importlib.import_module(f"producer.agent.{module}"), attribute)
    _installed.cache_clear()  # the plugin's package may have been installed since
    plugins = plugged_in(kind)
    if name in plugins:
        try:
            return plugins[name].load()
        except Exception as error:  # a plugin may raise anything
            point = plugins[name].value
            raise LookupError(f"{name} of {point} cannot be loaded: {type(error).__name__}: {error}") from error
    other = instead_of(kind, name)
    hint = f": it exists in Flume only; use {other}"
    if other is None:
        hint = _JAVA if _OF_JAVA.fullmatch(name) else nearest(name, [*BUILT_IN[kind], *plugins])
    raise LookupError(f"no such type {name!r}{hint}")


def plugged_in(kind: str) -> dict[str, EntryPoint]:
    """Return a kind's plugin types, as of the last search for a plugin."""
    return _installed().get(kind, {})


@cache
def _installed() -> dict[str, dict[str, EntryPoint]]:
    """Return all plugin types by kind. This reads the metadata of every installed package."""
    points = entry_points()
    return {kind: {point.name: point for point in points.select(group=f"{_GROUP}.{kind}")} for kind in BUILT_IN}
