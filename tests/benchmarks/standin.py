"""Runs client programs of this environment."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from .clients.protocol import Answer, Job
from .server import unmeasured


class Client:
    def __init__(self, name: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", f"tests.benchmarks.clients.{name}"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=unmeasured()
        )
        self.pid = self._process.pid
        assert self._process.stdout
        self.ways = json.loads(self._process.stdout.readline())

    def run(self, job: Job) -> Answer:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(dataclasses.asdict(job)) + "\n")
        self._process.stdin.flush()
        return Answer(**json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()


def address_of(client: str) -> str:
    return "kafka" if client == "kafka" else "null"


@contextmanager
def broker() -> Iterator[str]:
    raise NotImplementedError
    yield ""


PEERS = {"official": "", "python_sdk": "", "kafka": "", "java": "", "otlp": ""}


def prepare(names: list[str], log: Callable[[str], None]) -> dict[str, str]:
    clients = Path(__file__).parent / "clients"
    return {name: "no client program" for name in names if not (clients / f"{name}.py").exists()}


def versions(names: list[str]) -> dict[str, str]:
    return dict.fromkeys(names, "")
