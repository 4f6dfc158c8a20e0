"""What a component does otherwise than Flume's of that name: for those who come from there.

``producer agent explain TYPE`` prints it, and the site makes a table of it. What one has to act on, or chooses by,
stands in ``docs/migrate/flume.md`` instead: each difference is told once.
"""

from __future__ import annotations

#: Of syslog, over TCP and over UDP.
_SYSLOG = (
    ("an invalid message has Facility and Severity 0, an emergency of the kernel", "it has neither"),
    ("the year of RFC 3164 is the current one, give or take", "the last time that this was"),
    ("clientHostnameHeader asks for the name of each sender", "refused; clientIPHeader has the address"),
)
#: By kind and type: what Flume's does, and what ours does.
DIFFERENCES: dict[str, tuple[tuple[str, str], ...]] = {
    "sources.taildir": (
        ("half a line at the end is never delivered once the file is rotated", "it is"),
        ("a .gz that the pattern has is read as lines", "it is not"),
        (
            "the position file is written every 3 s; a death reads delivered lines again",
            "the position is in the commit: with a file channel no line comes twice",
        ),
    ),
    "sources.spooldir": (
        ("a file that changes, or whose name was used, ends the source", "told; the source goes on"),
        ("lines are cut at 2,048 characters", "they are whole, unless max_line_length says so"),
        ("decodeErrorPolicy = FAIL, which ends the source", "KEEP"),
        (
            "with a memory channel a file is renamed before its events are delivered",
            "after: they would be lost",
        ),
    ),
    "sources.exec": (
        ("a full channel ends the source, and what it held is lost", "the command waits"),
        ("the command outlives a killed agent", "it is killed"),
    ),
    "sources.netcat": (
        ("512 characters a line", "64 KiB"),
        ("a full channel answers FAILED, and the line is lost", "the peer waits"),
        ("what stands behind the last line end is lost with the connection", "it is an event"),
    ),
    "sources.syslog_tcp": (
        *_SYSLOG,
        (
            "eventSize = 2500; the rest of a longer message becomes further, invalid ones",
            "64 KiB; the first bytes are kept, the rest is passed over",
        ),
        ("messages with their sizes are not understood", "they are: rsyslog and syslog-ng send them"),
        ("a failed put loses the messages of the batch", "the connection waits"),
        ("charset.* decodes bodies", "bodies are bytes: another value than UTF-8 is refused"),
    ),
    "sources.syslog_udp": _SYSLOG,
    "sources.kafka": (
        (
            (
                "offsets are committed once the channel has the messages: a death in between brings a batch twice, "
                "and with a channel in memory what it held is lost"
            ),
            "the position is in the channel's commit",
        ),
    ),
    "sources.http": (
        (
            "settings of Jetty, HttpConfiguration.* and so on",
            "taken, and without a meaning: max_connections and silence are the bounds",
        ),
    ),
    "sources.avro": (("lists and maps of any size: a frame of 20 bytes takes gigabytes", "max_frame, max_memory"),),
    "sources.thrift": (("lists and maps of any size: a frame of 20 bytes takes gigabytes", "max_frame, max_memory"),),
    "sinks.file_roll": (
        (
            "files have their names while they are written; after a death they stay as they are",
            "hidden until they are whole; what a death left is ended at the next start, without a half line",
        ),
        ("empty files when nothing comes", "none"),
        (
            "a batch that failed half-way stands twice in the file",
            "it is taken back to the last acknowledged byte",
        ),
    ),
    "sinks.logger": (("16 bytes of a body, as a hex dump", "256, as text"),),
    "sinks.kafka": (
        ("acks = 1 by default: the death of a broker loses what was acknowledged", "acks = all"),
        ("what the client repeats may be stored twice", "once (enable.idempotence), unless acks says otherwise"),
    ),
    "sinks.objects": (
        ("after a death .tmp files stay for ever, and their events come again", "the same object again"),
        ("an event without a timestamp fails the sink for ever", "it has the time of writing"),
        (
            "a header with slashes or .. leads to other directories",
            "it is one part of the path: the senders of events would choose the file",
        ),
    ),
    "sinks.http": (
        ("requestTimeout = 5000", "30 seconds: what is sent again may be stored twice"),
        ("Retry-After is not looked at", "it is kept to, up to ten minutes"),
        (
            "a failure sends all events of the transaction again",
            "only those that were not taken, as long as the sink lives",
        ),
    ),
    "interceptors.regex_extractor": (
        (
            "a time that does not fit its pattern fails the batch",
            "the header is left out: one odd line would hold up all others for ever",
        ),
        (
            "millis takes Joda's patterns",
            (
                "the same letters (y M d D E H h m s S a z Z), or strptime's directives; a pattern without a year "
                "means the last time that this was"
            ),
        ),
    ),
    "interceptors.host": (
        (
            "the address of the local host, which is often 127.0.1.1",
            "the address that this machine speaks from",
        ),
    ),
    "interceptors.search_replace": (
        ("a replacement's $1", r"\1 or \g<name>; $1 is understood in Flume's files"),
        ("charset", "bodies are UTF-8; other bytes come through as they are"),
    ),
    "selectors.load_balancing": (("knows no health", "a full channel is passed over"),),
    "processors.failover": (
        ("of two sinks with one priority one is dropped", "refused"),
        ("while all are left alone nothing is tried", "the first one is"),
    ),
    "processors.load_balance": (("while all are left alone none is tried", "all are"),),
}
