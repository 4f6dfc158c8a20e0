"""The fuzz itself.

``make test-all`` runs it for 20 seconds with the same requests in every run, ``make soak`` for five minutes with new
ones. A failure names its seed and its round; these environment variables replay it::

    FUZZ_SEED=1234 FUZZ_ROUND=17 pytest tests/server/fuzz                # that round alone
    FUZZ_SEED=1234 FUZZ_ROUND=17 FUZZ_CASE=3 pytest tests/server/fuzz    # one connection of it
    FUZZ_SEED=1234 FUZZ_SECONDS=60 pytest tests/server/fuzz              # all rounds from the first one on
"""

import os
import random
import secrets
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest
import requests

from ..client import Client, log_group
from ..process import MIB, ServerProcess
from .cases import LEDGER, MESSY, PROJECT, Case, make_cases
from .delivery import Answer, Outcome, deliver
from .ledger import Ledger

SECONDS = float(os.environ.get("FUZZ_SECONDS") or (300 if "PRODUCER_SOAK" in os.environ else 20))
CASES = 60
CLIENTS = 8
#: Every so many rounds the server is killed in the middle and restarted.
KILLED_EVERY = 9
LIMITS = {"receive_seconds": 2.0, "send_seconds": 2.0, "search_seconds": 20.0, "connections": 100}
#: Largest growth of the server's memory: held_bytes, the peak of decoding one body, searches.
MEMORY = 600 * MIB
#: Seconds in which a small request must be answered during the fuzz on a busy machine.
PROMPTLY = 10.0
#: Refusals whose status blames the server instead of the request.
EXCUSES = {(500, "RequestTimeout"), (503, "ServerBusy")}
#: The answer to a HEAD has a status only. Failures of the server are also searched for as tracebacks in its log.
HEAD_EXCUSES = {status for status, _ in EXCUSES}


class Health:
    """A client that sends a small request continuously."""

    def __init__(self, server: ServerProcess) -> None:
        self.worst = 0.0
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _ask(self) -> None:
        with Client(self._server, project=PROJECT) as client:
            while not self._ended.wait(0.1):
                started = time.monotonic()
                try:
                    client.get(f"/logstores/{LEDGER}", timeout=60)
                except OSError:  # the server was killed
                    continue
                finally:
                    self.worst = max(self.worst, time.monotonic() - started)


class Fuzz:
    """One run: a server and the records written to it."""

    def __init__(self, seed: str, data: Path, errors: IO[str]) -> None:
        self.seed = seed
        self.server = ServerProcess(LIMITS, data=data, errors=errors)
        self.ledger = Ledger()
        self.worst = 0.0
        self._errors = errors

    def round(self, number: int) -> list[str]:
        """Run one round; return all faults found after it."""
        dice = random.Random(f"{self.seed}:{number}")
        cases = make_cases(dice, f"{self.seed}-{number}", self.server.port, CASES)
        if "FUZZ_CASE" in os.environ:
            cases = [cases[int(os.environ["FUZZ_CASE"])]]
        is_killed = number % KILLED_EVERY == KILLED_EVERY - 1
        problems = self._deliver_all(cases, number, dice.randrange(len(cases)) if is_killed else None)
        if not self.server.alive:
            return [*problems, "the server died"]
        try:
            with Client(self.server, project=PROJECT) as client:
                problems += self.ledger.check(client)
                problems += self._check_health(client)
        except requests.RequestException as error:
            problems.append(f"after the round the server does not answer: {error}")
        return problems

    def _deliver_all(self, cases: list[Case], number: int, killed_after: int | None) -> list[str]:
        held: list[socket.socket] = []
        health = Health(self.server)
        problems: list[str] = []

        def run(index: int) -> None:
            case = cases[index]
            if index == killed_after:
                self.server.restart()
            try:
                outcome = deliver(case, self.server.port, random.Random(f"{self.seed}:{number}:{index}"), held)
            except OSError as error:
                # After a kill the outcome of the last requests is unknown.
                found = [] if killed_after is not None else [f"the client met {error!r}"]
            else:
                if killed_after is not None:
                    outcome.ended = False
                    if outcome.answers and outcome.answers[-1].problem:  # the kill may have cut it
                        outcome.answers.pop()
                found = _check_answers(outcome) + self.ledger.enter(case, outcome)
            problems.extend(f"case {index} ({case}): {problem}" for problem in found)

        try:
            with ThreadPoolExecutor(CLIENTS) as clients:
                list(clients.map(run, range(len(cases))))
        finally:
            health.close()
            for connection in held:
                connection.close()
        self.worst = max(self.worst, health.worst)
        if killed_after is None and health.worst > PROMPTLY:
            problems.append(f"a small request took {health.worst:.1f} s meanwhile")
        return problems

    def _check_health(self, client: Client) -> list[str]:
        started = time.monotonic()
        status = client.put(log_group("healthy"), logstore="healthy").status_code
        took = time.monotonic() - started
        self._errors.flush()
        log = Path(self._errors.name).read_text()
        memory = self.server.resident()
        return [
            *([f"a good write is answered {status} after the round"] if status != 200 else []),
            *([f"a good write took {took:.1f} s after the round"] if took > PROMPTLY else []),
            *([f"the server has {memory // MIB} MiB"] if memory > MEMORY else []),
            *([f"the server logged: {log[-2000:]}"] if "Traceback" in log else []),
        ]


def _check_answers(outcome: Outcome) -> list[str]:
    return [
        f"{answer}"
        for answer in outcome.answers
        if answer.problem or (answer.status >= 500 and not _is_excused(answer))
    ]


def _is_excused(answer: Answer) -> bool:
    if not answer.has_body:
        return answer.status in HEAD_EXCUSES
    return (answer.status, answer.code) in EXCUSES


@pytest.mark.timeout(SECONDS + 200)
def test_the_server_bears_whatever_clients_send(tmp_path: Path) -> None:
    """Whatever clients send, the server stays alive, bounded in memory, prompt and correct.

    Requests may be signed or not, whole or not. Small valid requests are answered promptly, the server never fails by
    itself, and valid records are stored exactly once.
    """
    seed = os.environ.get("FUZZ_SEED") or (secrets.token_hex(4) if "PRODUCER_SOAK" in os.environ else "1")
    first = int(os.environ.get("FUZZ_ROUND", "0"))
    deadline = time.monotonic() + (0 if "FUZZ_ROUND" in os.environ else SECONDS)
    print(f"seed {seed}")
    with (tmp_path / "errors").open("w") as errors:
        fuzz = Fuzz(seed, tmp_path / "data", errors)
        with fuzz.server, Client(fuzz.server, project=PROJECT) as client:
            for name in (LEDGER, MESSY):
                assert client.put(log_group("first"), logstore=name).status_code == 200
            number = first
            while number == first or time.monotonic() < deadline:
                problems = fuzz.round(number)
                replay = f"FUZZ_SEED={seed} FUZZ_ROUND={number} pytest {Path(__file__).parent}"
                assert not problems, f"replay with {replay}\n" + "\n".join(problems[:20])
                number += 1
            print(
                f"{number - first} rounds, {fuzz.ledger.stored} records, the slowest small request {fuzz.worst:.2f} s"
            )
            print(f"{fuzz.server.peak() // MIB} MiB at most since the last kill")
