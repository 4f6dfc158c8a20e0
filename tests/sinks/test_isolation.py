"""A failing destination does not affect the others."""

import socket
import threading
from collections.abc import Iterator

import pytest

from producer import CloseTimeoutError, HttpConfig, Producer, ProducerConfig, ProjectConfig
from producer.server import LogHubServer, faults


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer() as server:
        yield server


@pytest.fixture
def black_hole() -> Iterator[str]:
    """Run a server that accepts connections and never answers; yield its endpoint."""
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                taken.append(listener.accept()[0])
            except OSError:
                return

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(60)
    for connection in taken:
        connection.close()


def project_for(server: LogHubServer, name: str, endpoint: str | None = None) -> ProjectConfig:
    return ProjectConfig(
        name,
        endpoint=endpoint or server.endpoint,
        access_key_id=server.access_key_id,
        access_key_secret=server.access_key_secret,
    )


def test_a_project_that_never_answers_leaves_threads_to_the_others(server: LogHubServer, black_hole: str) -> None:
    """Dozens of batches for a dead endpoint do not delay the records of another project."""
    config = ProducerConfig(
        linger_ms=100,
        batch_count_threshold=1,
        io_thread_count=2,
        retries=0,
        http=HttpConfig(read_timeout_ms=700),
    )
    with Producer(project_for(server, "good"), project_for(server, "dead", black_hole), config=config) as producer:
        dead = [producer.send("dead", "l", {"n": n}) for n in range(12)]
        assert dead[0].exception(20) is not None
        good = [producer.send("good", "l", {"n": n}) for n in range(20)]
        assert all(future.result(60).successful for future in good)
        assert sum(future.done() for future in dead) < 8
        with pytest.raises(CloseTimeoutError):  # the records of the dead endpoint
            producer.close(0.01)


def test_a_logstore_over_its_quota_is_held_back_alone(server: LogHubServer) -> None:
    """While one logstore is throttled for its quota, another one of the project gets its records at once."""
    server.faults.add(faults.answer(403, "ShardWriteQuotaExceed"), logstore="busy")
    config = ProducerConfig(
        linger_ms=100, batch_count_threshold=1, base_retry_backoff_ms=60_000, max_retry_backoff_ms=60_000
    )
    producer = Producer(project_for(server, "p"), config=config)
    busy = [producer.send("p", "busy", {"n": n}) for n in range(10)]
    free = [producer.send("p", "free", {"n": n}) for n in range(10)]
    assert all(future.result(60).attempt_count == 1 for future in free)
    assert not any(future.done() for future in busy)
    # Batches of a throttled logstore wait without attempts: only those in flight together were refused.
    refused = sum(request.logstore == "busy" for request in server.requests)
    assert 1 <= refused <= config.io_thread_count
    server.faults.clear()
    producer.close(8)  # each batch gets its last attempt now
    assert all(future.result(0).successful for future in busy)
