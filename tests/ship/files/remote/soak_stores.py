"""Files of stores as they are: Hadoop's own file system, by WebHDFS and by its own protocol; OSS by its own client.

A part of ``make soak``: it takes a JDK with Maven, and what these and pip download into ``.bench``; a minute, the
first time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from producer.server import LogHubServer
from tests.benchmarks.installation import FOLDER, PATIENCE, locked, once
from tests.support.remote_servers import OSS_KEY, OSS_SECRET, oss_server

from ...conftest import LOGSTORE, PROJECT, contents, server, ship_arguments
from .test_store import PACKERS

__all__ = ["server"]

pytestmark = pytest.mark.timeout(2 * PATIENCE)

HADOOP = Path(__file__).with_name("hadoop")
LINES = [f"{number} {'x' * (number % 97)}" for number in range(30_000)]
#: As a user would have them, by their paths.
FILES = {
    "app/a.log": "".join(f"{line}\n" for line in LINES).encode(),
    "app/b/c d.log": b"c\n",
    **{f"app/x.{suffix}": pack(b"packed\n") for suffix, pack in PACKERS.items()},
    "other/e.log": b"e\n",
}
BELOW_APP = [*LINES, "c", *["packed"] * len(PACKERS)]

#: ``producer`` with packages of a folder behind those that are installed.
_COMMAND = "import sys; sys.path.append(sys.argv.pop(1)); from producer.cli import main; sys.exit(main(sys.argv[1:]))"


def _installed(name: str, *packages: str) -> Path:
    """A folder with packages from the index, made once."""
    target = FOLDER / f"stores-{name}"
    with locked(FOLDER), once(target, " ".join(packages).encode()) as needed:
        if needed:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
            subprocess.run([*pip, "--target", str(target), *packages], check=True, timeout=PATIENCE)
    return target


@pytest.fixture
def ship(server: LogHubServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``producer ship`` into the server."""

    def run(address: str, packages: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        arguments = ["ship", *ship_arguments(server, address, "--engine=local", "--workers=2", "--parser=text")]
        command = [sys.executable, "-c", _COMMAND, str(packages), *arguments, "--partition-bytes=300000"]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False)

    return run


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A name node with the files: where it is asked by RPC, and by HTTP."""
    if shutil.which("mvn") is None:
        pytest.skip("`mvn` was not found: Hadoop was not tried")
    jars = FOLDER / "hadoop"
    with locked(FOLDER), once(jars, (HADOOP / "pom.xml").read_bytes()) as needed:
        if needed:
            copy = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
            subprocess.run(["mvn", "--batch-mode", "--quiet", *copy], cwd=HADOOP, check=True, timeout=PATIENCE)
    command = ["java", "-cp", f"{jars}/*", str(HADOOP / "Cluster.java"), str(tmp_path_factory.mktemp("hadoop"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as java:
        try:
            rpc, http = _read_line(java).split()
            for path, data in FILES.items():
                _put(f"http://127.0.0.1:{http}/webhdfs/v1/{path}", data)
            yield f"127.0.0.1:{rpc}", f"127.0.0.1:{http}"
        finally:
            java.kill()


def _read_line(java: subprocess.Popen[bytes]) -> str:
    assert java.stdout is not None
    return java.stdout.readline().decode()


def _put(url: str, data: bytes) -> None:
    """Write a file: the name node says which data node takes it."""
    asked = {"op": "CREATE", "user.name": "root", "overwrite": "true"}
    where = requests.put(url, params=asked, allow_redirects=False, timeout=60).headers["Location"]
    requests.put(where, data=data, timeout=60).raise_for_status()


def test_hadoop_is_read_by_webhdfs(
    hadoop: tuple[str, str], server: LogHubServer, ship: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Below a directory, in ranges, and compressed; a file that is not there is said."""
    _, http = hadoop
    done = ship(f"webhdfs://root@{http}/app", Path("/none"))
    assert done.returncode == 0, done.stderr
    assert sorted(contents(server)) == sorted(BELOW_APP)
    done = ship(f"webhdfs://root@{http}/none", Path("/none"))
    assert done.returncode == 2
    assert "not found" in done.stderr


def test_hadoop_is_read_by_its_own_protocol(
    hadoop: tuple[str, str], server: LogHubServer, ship: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """By the package hdfs-native, without Hadoop's own libraries."""
    rpc, _ = hadoop
    packages = _installed("hadoop", "hdfs-native")
    done = ship(f"hdfs://{rpc}/app", packages)
    assert done.returncode == 0, done.stderr
    assert sorted(contents(server)) == sorted(BELOW_APP)
    done = ship(f"hdfs://{rpc}/none", packages)
    assert done.returncode == 2
    assert "not found" in done.stderr


def test_oss_is_read_by_its_own_client(
    server: LogHubServer, ship: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """ossfs, from an endpoint on this machine: below a prefix, by a glob, in ranges; what is wrong is said."""
    packages = _installed("oss", "ossfs")
    with oss_server("logs", FILES) as url:
        told = {"FSSPEC_OSS_KEY": OSS_KEY, "FSSPEC_OSS_SECRET": OSS_SECRET, "FSSPEC_OSS_ENDPOINT": url}
        done = ship("oss://logs/app", packages, **told)
        assert done.returncode == 0, done.stderr
        assert sorted(contents(server)) == sorted(BELOW_APP)
        done = ship("oss://logs/other/*.log", packages, **told)
        assert done.returncode == 0, done.stderr
        assert contents(server, "oss://logs/other/e.log") == ["e"]
        for address, said in (("oss://logs/none", "not found"), ("oss://nobody/a", "NoSuchBucket")):
            done = ship(address, packages, **told)
            assert done.returncode == 2
            assert said in done.stderr
        done = ship("oss://logs/app", packages, **told | {"FSSPEC_OSS_KEY": "another"})
        assert done.returncode == 2
        assert OSS_SECRET not in done.stderr
    assert server.count(PROJECT, LOGSTORE) == len(BELOW_APP) + 1
