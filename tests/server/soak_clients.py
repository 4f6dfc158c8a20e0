"""The calls of the official CLI, Go and Java clients against the embedded server, as protocol.md lists them.

A part of ``make soak``. It needs Go, and a JDK with Maven, and downloads packages; the first run takes a minute each.
The programs are in ``clients`` and are built into ``.bench``.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producer.server import LogHubServer, ServerStartError

from ..benchmarks.installation import FOLDER, PATIENCE, locked, once
from .test_official_calls import CLIENTS, documented

# An address of its own, so that its port 80 is free; not every system has it.
_ADDRESS = "127.0.77.1"
_CLI = "aliyun-log-cli==0.2.10"


def _built(name: str, command: list[str]) -> Path:
    """Run ``command`` in the program's folder once, and return its output folder ``TARGET``."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"`{command[0]}` was not found: the calls of {name} were not tried")
    target, place = FOLDER / f"calls-{name}", CLIENTS / name
    sources = b"".join(path.read_bytes() for path in sorted(place.iterdir()))
    with locked(FOLDER), once(target, sources) as needed:
        if needed:
            target.mkdir()
            made = [argument.replace("TARGET", str(target)) for argument in command]
            subprocess.run(made, cwd=place, check=True, timeout=PATIENCE)
    return target


def _outcomes(command: list[str], **environment: str) -> dict[str, str | None]:
    kept = {key: value for key, value in os.environ.items() if key.lower() not in ("no_proxy", "all_proxy")}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env=kept | environment, timeout=PATIENCE, check=True
    )
    return dict(json.loads(done.stdout))


@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("version", ["v1", "v4"])
def test_each_call_of_the_go_sdk_producer_and_consumer_library_works_or_is_refused_as_documented(version: str) -> None:
    """Each call of the Go SDK, producer and consumer library works, or is refused as documented."""
    program = _built("go", ["go", "build", "-o", "TARGET/calls"]) / "calls"
    with LogHubServer(auto_create=False) as server:
        proxy = {"http_proxy": server.endpoint, "HTTP_PROXY": server.endpoint}
        command = [str(program), server.access_key_id, server.access_key_secret, version]
        assert documented("Go") == _outcomes(command, **proxy)


@pytest.mark.timeout(2 * PATIENCE)
def test_each_cli_command_about_logs_works_or_is_refused_as_documented(tmp_path: Path) -> None:
    """Each CLI command about logs works, or is refused as documented."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", "TARGET", _CLI]
    program = [sys.executable, "-W", "ignore", str(CLIENTS / "cli" / "calls.py")]
    packages = _built("cli", pip)
    with LogHubServer(auto_create=False) as server:
        proxy = {"http_proxy": server.endpoint, "HTTP_PROXY": server.endpoint}
        paths = {"PYTHONPATH": str(packages), "HOME": str(tmp_path)}  # the folder of its log
        keys = [server.access_key_id, server.access_key_secret]
        assert documented("CLI") == _outcomes([*program, *keys, str(tmp_path)], **proxy, **paths)


@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("version", ["V1", "V4"])
def test_each_call_of_the_java_sdk_producer_and_consumer_library_works_or_is_refused_as_documented(
    version: str, tmp_path: Path
) -> None:
    """Each call of the Java SDK, producer and consumer library works, or is refused as documented."""
    jars = _built(
        "java", ["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies", "-DoutputDirectory=TARGET"]
    )
    expected = documented("Java")
    with _server_with_port_80() as server:
        outcomes = _java_outcomes(server, jars, tmp_path / "hosts", version)
    if server.port == 80:
        assert expected == outcomes
        return
    assert expected == outcomes | {"ClientWorker": None}
    pytest.skip(f"port 80 of {_ADDRESS} cannot be had: ClientWorker was not tried, all other calls were")


def _java_outcomes(server: LogHubServer, jars: Path, hosts: Path, version: str) -> dict[str, str | None]:
    hosts.write_text(f"{server.host} my-project.loghub.test loghub.test\n")
    java = ["java", f"-Djdk.net.hosts.file={hosts}", "-cp", f"{jars}/*", str(CLIENTS / "java" / "Calls.java")]
    return _outcomes([*java, server.host, str(server.port), server.access_key_id, server.access_key_secret, version])


# The client asks for hosts of the service, which a server with the default key refuses.
_OWN_KEY = {"own-key-id": "own-key-secret"}


@contextmanager
def _server_with_port_80() -> Iterator[LogHubServer]:
    server = LogHubServer(auto_create=False, host=_ADDRESS, port=80, access_keys=_OWN_KEY)
    try:
        server.start()
    except ServerStartError:
        server = LogHubServer(auto_create=False, access_keys=_OWN_KEY).start()
    try:
        yield server
    finally:
        server.close()
