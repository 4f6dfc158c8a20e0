"""A source, the monitoring and the server refuse requests that a proxy could end at another byte."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from producer.agent.monitoring import MonitoringServer
from producer.server import LogHubServer
from tests.agent.monitored import Monitored
from tests.agent.sources.listeners import Served, all_of, serving
from tests.support.smuggling import BODIES, HEADS, HIDDEN
from tests.support.waiting import PATIENCE

_REFUSED = re.compile(rb"HTTP/1\.1 (400|411|413|431|501|505) ")
_ANSWER = re.compile(rb"HTTP/1\.1 \d{3} ")
_QUIET = '[agent]\nname = "a"\nstate = "{state}"\n[sources.s]\ntype = "sequence"\nchannels = ["c"]\ntotal_events = 1\n'
_REST = '[channels.c]\ntype = "memory"\n[sinks.n]\ntype = "null"\nchannel = "c"\n'


class _Servers:
    def __init__(self, source: Served, server: LogHubServer, monitoring: MonitoringServer) -> None:
        self.source = source
        self.addresses = {
            "source": source.address,
            "server": ("127.0.0.1", server.port),
            "monitoring": ("127.0.0.1", monitoring.port),
        }

    def answers(self, name: str, sent: bytes) -> bytes:
        """Return the whole response to some bytes, until the connection is closed."""
        with socket.create_connection(self.addresses[name], timeout=PATIENCE) as peer:
            peer.sendall(sent)
            return all_of(peer)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Servers]:
    state: Path = tmp_path_factory.mktemp("state")
    with ExitStack() as opened:
        source = opened.enter_context(serving("http", format="lines"))
        server = opened.enter_context(LogHubServer())
        agent = opened.enter_context(Monitored(state, config=_QUIET + _REST))
        yield _Servers(source, server, agent.server)


@pytest.mark.parametrize("name", ["source", "server", "monitoring"])
@pytest.mark.parametrize("fault", HEADS)
def test_a_head_that_could_be_read_in_two_ways_is_refused(fault: str, name: str, servers: _Servers) -> None:
    """An ambiguous head gets one refusal, then the connection ends: following bytes are never taken for a request."""
    taken = len(servers.source.outlet.batches)
    answers = servers.answers(name, HEADS[fault] + HIDDEN)
    assert _REFUSED.match(answers)
    assert len(_ANSWER.findall(answers)) == 1
    assert len(servers.source.outlet.batches) == taken


@pytest.mark.parametrize("name", ["source", "server"])
@pytest.mark.parametrize("fault", BODIES)
def test_chunks_that_could_be_read_in_two_ways_are_refused(fault: str, name: str, servers: _Servers) -> None:
    """An ambiguous body is refused; the monitoring reads no body and closes after each response."""
    taken = len(servers.source.outlet.batches)
    answers = servers.answers(name, BODIES[fault] + HIDDEN)
    assert re.match(rb"HTTP/1\.1 4\d\d ", answers)
    assert len(_ANSWER.findall(answers)) == 1
    assert len(servers.source.outlet.batches) == taken
