"""Records that a handler of ``logging`` takes in a second: ``python -m tests.benchmarks.handlers``, for the table in
``docs/integrations.md``.

Each handler has a process of its own, and logs from one thread, best of three; the time ends when everything is
delivered, or in the file. LogHub is a null server in another process, on the same machine.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .server import null_server, unmeasured

ROUNDS = 3
#: Records in a round.
COUNTS = {"ours": 100_000, "file": 100_000, "queued": 10_000}
NAMES = {
    "ours": "`LogHubHandler`",
    "queued": "`QueuedLogHandler` of aliyun-log-python-sdk",
    "file": "`logging.FileHandler`, with the same fields",
}
_FORMAT = (
    "%(asctime)s %(levelname)s %(name)s %(pathname)s %(funcName)s %(lineno)d %(threadName)s %(process)d %(message)s"
)


@contextmanager
def handler_of(name: str, port: int) -> Iterator[tuple[logging.Handler, Callable[[], object]]]:
    """A handler, and what waits until it has delivered everything."""
    if name == "ours":
        from producer.integrations.logging import LogHubHandler

        keys = {"access_key_id": "a", "access_key_secret": "s"}
        ours = LogHubHandler(
            project="p", logstore="l", endpoint=f"http://127.0.0.1:{port}", on_full="wait", flush_timeout=100, **keys
        )
        yield ours, ours.flush
        ours.close()
    elif name == "queued":
        from aliyun.log import LogClient, QueuedLogHandler

        class Queued(QueuedLogHandler):  # type: ignore[misc]
            def create_client(self) -> None:  # as the library, which overlooks an address with a port
                self.client = LogClient(self.end_point, "a", "s", source="client")
                self.client._isRowIp = True

        queued = Queued(f"http://127.0.0.1:{port}", "a", "s", "p", "l", close_wait=100)
        yield queued, queued.stop  # nothing else flushes
    else:
        with tempfile.NamedTemporaryFile() as file:
            handler = logging.FileHandler(file.name)
            handler.setFormatter(logging.Formatter(_FORMAT))
            yield handler, handler.flush
            handler.close()


def measure(name: str, port: int) -> float:
    """Records a second of the best round."""
    count, best = COUNTS[name], 0.0
    logger = logging.getLogger("app.views")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    for _ in range(ROUNDS):
        with handler_of(name, port) as (handler, flush):
            logger.addHandler(handler)
            started = time.perf_counter()
            for number in range(count):
                logger.info("order %d of %s was paid with %s in %.1f ms", number, "customer-17", "card", 31.7)
            flush()
            best = max(best, count / (time.perf_counter() - started))
            logger.removeHandler(handler)
    return best


def main() -> None:
    """Print the table, or the figure of one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    if given.only:
        print(f"{measure(given.only, given.port):.0f}")
        return
    print("| handler | thousand records/s |\n|---|---|")
    for name, shown in NAMES.items():
        with null_server() as port:
            command = [sys.executable, "-m", __spec__.name, "--only", name, "--port", str(port)]
            done = subprocess.run(command, capture_output=True, text=True, env=unmeasured(), check=True)
        print(f"| {shown} | {float(done.stdout.split()[-1]) / 1000:.1f} |")


if __name__ == "__main__":
    main()
