"""Measure the agent's rates from more sources and formats and into more sinks, which have no goal.

``python -m tests.benchmarks.agent_rates`` runs ``producer agent`` on one path after the other, by the harness of
:mod:`.agent_goals`, and prints a table: the rate of the events that leave the channel, CPU seconds and memory of the
agent alone. The bytes are made before, and sent by another process (:mod:`.agent_senders`). A megabyte is one of lines,
messages or requests before compression. Only ``objects`` waits for more lines, so the last of them are not measured.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import boto3
import cramjam

from producer.agent.events.batch import EventBatch
from producer.agent.protocols.otlp import request_with
from producer.wire.schema import WriteRequest
from tests.agent.interceptors.pod_api import PodApi

from .agent import free_port, started
from .agent_goals import (
    MEMORY,
    NULL,
    TAILDIR,
    Figures,
    access_lines,
    medians,
    rate_of,
    running_agent,
    table,
    until_listening,
    write_old,
)
from .server import null_server, unmeasured

#: Events of a block of messages or of a request, and lines of a block of a file.
_EVENTS, _LINES = 1000, 10_000
_UID = "0ad6a3a8-9d0d-4b8e-bb1b-0a6a3a89d0d4"
_KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "s", "region_name": "us-east-1"}

#: Bytes as they are sent, the number of their events, and their size before compression.
Block = tuple[bytes, int, int]


@dataclass(frozen=True, slots=True)
class Rate:
    """A path whose rate is measured.

    :ivar way: how the agent gets the bytes: a way of :mod:`.agent_senders`, or ``file``, ``pod`` or ``bucket``.
    :ivar more: blocks at the end that are not measured, since a sink waits for a full object.
    """

    title: str
    parts: str
    block: Callable[[], Block]
    way: str = "file"
    place: str = "{hop}"
    more: int = 0


def _filled(form: str, count: int = _LINES, end: str = "\n") -> Callable[[], Block]:
    """Return numbered messages of 250 bytes: ``#`` is the number, ``~`` is filled up."""

    def block() -> Block:
        made = (form.replace("#", str(number)) for number in range(count))
        data = "".join(line.replace("~", "x" * (250 - len(line))) + end for line in made).encode()
        return data, count, len(data)

    return block


def _access(size: int | None = None) -> Block:
    return (data := access_lines(size, _LINES)), _LINES, len(data)


def _plain() -> Block:
    return _access(250)


def _otlp() -> Block:
    bodies = [line[:200] for line in access_lines(250, _EVENTS).splitlines()]
    attributes = {"user": [f"u{number}" for number in range(_EVENTS)], "http.route": ["/catalogue"] * _EVENTS}
    request = request_with([EventBatch.of_columns(bodies, attributes)], {"service.name": "shop"})
    return (data := request.SerializeToString()), _EVENTS, len(data)


def _remote_write() -> Block:
    request = WriteRequest()
    for number in range(_EVENTS):
        labels = {"__name__": "requests_total", "instance": f"10.0.0.{number}:80", "job": "shop", "code": "200"}
        pairs = [{"name": name.encode(), "value": value.encode()} for name, value in labels.items()]
        request.timeseries.add(labels=pairs, samples=[{"value": number + 0.5, "timestamp": 1_700_000_000_000 + number}])
    plain = request.SerializeToString()
    return bytes(cramjam.snappy.compress_raw(plain)), _EVENTS, len(plain)


def _source(kind: str, options: str = "port = {hop}", more: str = "") -> str:
    return f'[sources.r]\ntype = "{kind}"\nchannels = ["c"]\n{options}\n{more}{MEMORY}{NULL}'


def _parsed(options: str) -> str:
    return f'{TAILDIR}[[sources.r.interceptors]]\ntype = "parse"\n{options}\n{MEMORY}{NULL}'


def _sink(kind: str, options: str) -> str:
    return f'{TAILDIR}{MEMORY}[sinks.k]\ntype = "{kind}"\nchannel = "c"\n{options}\n'


_POD = 'paths = ["{folder}/pods/*/*/*.log"]\nline_format = "cri"\npod_headers = true'
_LABELS = (
    '[[sources.r.interceptors]]\ntype = "kubernetes"\nnode = "node-1"\napi = "{api}"\n'
    'token_file = "{folder}/token"\nca_file = "{folder}/ca.crt"\n'
)
_S3 = (
    'bucket = "logs"\nendpoint_url = "http://127.0.0.1:{hop}"\npath_style = true\npoll_delay = 0.1\n'
    'region = "us-east-1"\naccess_key_id = "a"\nsecret_access_key = "s"'
)
_ENDPOINT = 'endpoint = "http://127.0.0.1:{server}"\n'
_OBJECTS = 'path = "{folder}/out"\nroll_size = "8m"\n'
_GROK = "format = \"grok\"\npatterns = ['%{COMBINEDAPACHELOG}']"
_CRI = _filled("2024-01-01T00:00:00.000000000Z stdout F order # ~")
_JSON = _filled('{"time":"2024-01-01T00:00:00Z","level":"INFO","user":"u#","status":200,"took":0.25,"message":"~"}')
_PAIRS = _filled("time=2024-01-01T00:00:00Z level=INFO user=u# status=200 took=0.25 message=~")
_GELF = _filled(
    '{"version":"1.1","host":"web-1","short_message":"~","timestamp":1700000000.5,"level":6,"_user":"u#"}',
    _EVENTS,
    "\0",
)
_SYSLOG = _filled("<34>1 2024-01-01T00:00:00.000Z host app 1 ID# - ~", _EVENTS)
RATES = {
    "taildir": Rate("taildir", TAILDIR + MEMORY + NULL, _plain),
    "cri": Rate("taildir, CRI, `pod_headers`", _source("taildir", _POD), _CRI, "pod"),
    "kubernetes": Rate("likewise, labels by `kubernetes`", _source("taildir", _POD, _LABELS), _CRI, "pod"),
    "json": Rate("taildir, `parse` json of six fields", _parsed('format = "json"'), _JSON),
    "grok": Rate("taildir, `parse` grok of access logs", _parsed(_GROK), _access),
    "key_value": Rate("taildir, `parse` key_value of six fields", _parsed('format = "key_value"'), _PAIRS),
    "gelf_tcp": Rate("gelf, TCP", _source("gelf", 'transport = "tcp"\nport = {hop}'), _GELF, "stream"),
    "gelf_udp": Rate("gelf, UDP", _source("gelf"), _GELF, "datagrams"),
    "otlp_http": Rate("otlp, HTTP", _source("otlp"), _otlp, "otlp"),
    "otlp_grpc": Rate("otlp, gRPC", _source("otlp", 'transport = "grpc"\nport = {hop}'), _otlp, "grpc"),
    "syslog": Rate("syslog, Unix", _source("syslog_tcp", 'bind = "unix:{folder}/s"'), _SYSLOG, "stream", "{folder}/s"),
    "remote_write": Rate("prometheus_remote_write", _source("prometheus_remote_write"), _remote_write, "remote_write"),
    "s3": Rate("s3, from moto", _source("s3", _S3), _plain, "bucket"),
    "elasticsearch": Rate("elasticsearch", _sink("elasticsearch", _ENDPOINT + 'index = "logs-%Y.%m.%d"'), _plain),
    "loki": Rate("loki", _sink("loki", _ENDPOINT), _plain),
    "text": Rate("objects, text (gzip), disk", _sink("objects", _OBJECTS), _plain, more=4),
    "parquet": Rate("objects, Parquet, disk", _sink("objects", _OBJECTS + 'format = "parquet"'), _plain, more=4),
}


def measure(rate: Rate, megabytes: int) -> tuple[int, Figures]:
    """Return the bytes of an event, and the figures of a run with its events per second."""
    data, events, size = rate.block()
    times = max(1, megabytes * 1_000_000 // size)
    with tempfile.TemporaryDirectory(prefix="a-") as name, ExitStack() as alive:
        folder, hop = Path(name), free_port()
        values = {"hop": hop, **_servers(rate, folder, alive)}
        _prepare(rate.way, folder, hop, data, times + rate.more, alive)
        agent = alive.enter_context(running_agent(folder, "a", rate.parts, **values))
        if rate.way not in ("file", "pod", "bucket"):
            (folder / "block").write_bytes(data)
            command = [sys.executable, "-m", "tests.benchmarks.agent_senders", rate.way]
            place = rate.place.format(hop=hop, folder=folder)
            sender = subprocess.Popen([*command, place, str(folder / "block"), str(times)], env=unmeasured())
            alive.callback(sender.wait)
            alive.callback(sender.kill)
        return size // events, agent.figures(rate_of(agent.delivered, times * events))


def _servers(rate: Rate, folder: Path, alive: ExitStack) -> dict[str, object]:
    """Start the servers that the path needs."""
    if "{api}" in rate.parts:
        api = PodApi(folder)
        alive.callback(api.close)
        api.put(_UID)
        return {"api": api.url}
    return {"server": alive.enter_context(null_server())} if "{server}" in rate.parts else {}


def _prepare(way: str, folder: Path, port: int, data: bytes, times: int, alive: ExitStack) -> None:
    """Store the data that is there before the agent starts."""
    if way in ("file", "pod"):
        write_old(folder / ("in/a.log" if way == "file" else f"pods/shop_web-1_{_UID}/app/0.log"), data, times)
    elif way == "bucket":
        alive.enter_context(started([sys.executable, "-m", "moto.server", "-p", str(port)]))
        until_listening(port)
        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **_KEYS)
        client.create_bucket(Bucket="logs")
        for number in range(times):
            client.put_object(Bucket="logs", Key=f"{number:06}", Body=data)


def row(rate: Rate, runs: Sequence[tuple[int, Figures]]) -> str:
    """Return the path's row of the table, with medians."""
    found = medians([figures for _, figures in runs])
    megabytes = found.value * runs[0][0] / 1e6
    return f"| {rate.title} | {found.value:,.0f} | {megabytes:.1f} | {found.cpu:.2f} | {found.memory:.0f} |"


def main() -> None:
    head = "| path | events/s | MB/s | CPU s | MiB |\n|---|---|---|---|---|"
    table(
        "agent-rates", head, RATES, lambda case, size, rounds: row(case, [measure(case, size) for _ in range(rounds)])
    )


if __name__ == "__main__":
    main()
