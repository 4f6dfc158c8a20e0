"""Differences between components and Flume's components of the same name, for migration.

``producer agent explain TYPE`` prints them, and the documentation lists them. Differences that need an action or a
decision are in ``docs/migrate/flume.md`` instead, so that each difference is stated once.
"""

from __future__ import annotations

#: The differences of both syslog sources, over TCP and over UDP.
_SYSLOG = (
    ("an invalid message gets Facility and Severity 0, a kernel emergency", "it gets neither"),
    ("a time of RFC 3164 gets about the current year", "the latest year that puts it in the past"),
    ("clientHostnameHeader looks up the sender's name", "refused; clientIPHeader has the address"),
)
#: The differences of components by kind and type: the behaviour of Flume's component, and that of this one.
DIFFERENCES: dict[str, tuple[tuple[str, str], ...]] = {
    "sources.taildir": (
        ("an unfinished last line is lost once the file is rotated", "it is delivered"),
        ("a .gz file that matches the pattern is read as lines", "it is not read"),
        (
            "the position file is written every 3 s, so a crash delivers lines again",
            "the commit stores the position: a file channel gets no line twice",
        ),
    ),
    "sources.spooldir": (
        ("a changed file, or a name used before, stops the source", "it is logged, and the source continues"),
        ("lines are cut at 2,048 characters", "lines are whole, unless max_line_length is set"),
        ("decodeErrorPolicy = FAIL by default, which stops the source", "KEEP by default"),
        (
            "with a memory channel a file is completed before its events are delivered",
            "it is completed after the delivery, so a crash loses none",
        ),
    ),
    "sources.exec": (
        ("a full channel stops the source and loses its events", "the command waits"),
        ("the command outlives a killed agent", "it is killed, too"),
    ),
    "sources.netcat": (
        ("512 characters a line", "64 KiB a line"),
        ("if a channel is full, the answer is FAILED and the line is lost", "the peer waits"),
        ("text after the last line end is lost with the connection", "it is an event"),
    ),
    "sources.syslog_tcp": (
        *_SYSLOG,
        (
            "eventSize = 2500; the rest of a longer message becomes invalid messages",
            "64 KiB; the rest of a longer message is dropped",
        ),
        ("octet counting is not supported", "supported: rsyslog and syslog-ng use it"),
        ("a failed put loses the batch", "the connection waits"),
        ("charset.* decodes bodies", "bodies are bytes; values other than UTF-8 are refused"),
    ),
    "sources.syslog_udp": _SYSLOG,
    "sources.kafka": (
        (
            (
                "offsets are committed after the put: a crash in between repeats a batch, and a memory channel loses "
                "its events"
            ),
            "the channel's commit stores the position",
        ),
    ),
    "sources.http": (
        (
            "Jetty's settings, such as HttpConfiguration.*",
            "accepted without effect: max_connections and silence are the limits",
        ),
    ),
    "sources.avro": (
        (
            "lists and maps are not limited: a frame of 20 bytes can take gigabytes",
            "max_frame and max_memory limit them",
        ),
    ),
    "sources.thrift": (
        (
            "lists and maps are not limited: a frame of 20 bytes can take gigabytes",
            "max_frame and max_memory limit them",
        ),
    ),
    "sinks.file_roll": (
        (
            "files have their final names while written, and stay incomplete after a crash",
            "files are hidden until complete; after a crash the next start completes them, without a partial line",
        ),
        ("empty files are made without events", "no empty files"),
        (
            "a batch that failed in part is twice in the file",
            "the file is truncated to the last acknowledged byte",
        ),
    ),
    "sinks.logger": (("16 bytes of a body, as a hex dump", "256 bytes, as text"),),
    "sinks.kafka": (
        ("acks = 1 by default: a broker's crash loses acknowledged events", "acks = all by default"),
        ("the client's retries may store an event twice", "once (enable.idempotence), unless acks is changed"),
    ),
    "sinks.objects": (
        ("after a crash .tmp files remain, and their events are repeated", "the same object is written again"),
        ("an event without a timestamp blocks the sink permanently", "it gets the time of writing"),
        (
            "a header with slashes or .. selects another directory",
            "a header is always one part of the path: senders cannot choose the file",
        ),
    ),
    "sinks.http": (
        ("requestTimeout = 5000", "30 s: a request sent again may be stored twice"),
        ("Retry-After is ignored", "it is obeyed, up to ten minutes"),
        (
            "a failure repeats all events of the transaction",
            "only events that were not accepted, while the sink lives",
        ),
    ),
    "interceptors.regex_extractor": (
        (
            "a time that does not fit its pattern fails the batch",
            "the header is left out: one invalid line must not block all others",
        ),
        (
            "millis accepts Joda's patterns",
            (
                "the same letters (y M d D E H h m s S a z Z), or strptime's directives; without a year the "
                "latest such time is meant"
            ),
        ),
    ),
    "interceptors.host": (
        (
            "the local host's address, which is often 127.0.1.1",
            "the address from which this machine reaches others",
        ),
    ),
    "interceptors.search_replace": (
        ("a replacement's $1", r"\1 or \g<name>; $1 is accepted in Flume's files"),
        ("charset", "bodies are UTF-8; other bytes are kept"),
    ),
    "selectors.load_balancing": (("a failed channel is not skipped", "a full channel is skipped"),),
    "processors.failover": (
        ("of two sinks with the same priority one is dropped", "they are refused"),
        ("while all sinks are in backoff none is tried", "the first one is tried"),
    ),
    "processors.load_balance": (("while all sinks are in backoff none is tried", "all are tried"),),
}
