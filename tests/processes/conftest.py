import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from producer.server import LogHubServer

from . import interpreters
from .child import Child, Ended, environment_for


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer() as server:
        yield server


@pytest.fixture(scope="session")
def python_of() -> Callable[[str], str]:
    """Return the function that finds the executable of a version, with the package installed."""
    return interpreters.environment


@pytest.fixture(params=list(dict.fromkeys([*interpreters.found(), *interpreters.WANTED])))
def python(request: pytest.FixtureRequest, python_of: Callable[[str], str]) -> str:
    """Run the test with every supported Python; a wanted one that is missing skips the test."""
    return python_of(request.param)


@pytest.fixture
def start(server: LogHubServer) -> Iterator[Callable[..., Child]]:
    """Start programs that send to ``server``; those still running at the end of the test are killed."""
    children: list[Child] = []

    def starter(program: str | Path, *arguments: object, endpoint: str | None = None, **others: str) -> Child:
        environment = environment_for(endpoint or server.endpoint, server)
        children.append(Child(program, *arguments, environment=environment, **others))
        return children[-1]

    yield starter
    for child in children:
        if child.process.poll() is None:
            child.process.kill()
        child.process.communicate()


@pytest.fixture
def run(start: Callable[..., Child]) -> Callable[..., Ended]:
    return lambda *arguments, **others: start(*arguments, **others).end()


@pytest.fixture
def dead_endpoint() -> Iterator[str]:
    """Yield the endpoint of a reserved port without a listener: connections are refused."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"


@pytest.fixture
def stalled_endpoint() -> Iterator[str]:
    """Yield the endpoint of a server that accepts connections and never responds."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
