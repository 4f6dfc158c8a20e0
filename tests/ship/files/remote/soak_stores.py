"""Files of real stores: Hadoop by WebHDFS and by its own protocol, OSS by its own client, Azure by Microsoft's
emulator.

A part of ``make soak``. It needs a JDK with Maven, npm, and packages that these and pip download into ``.bench``; the
first run takes minutes.
"""

import gzip
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from producer.server import LogHubServer
from producer.ship.errors import FileChangedError
from producer.ship.files.find import Search
from producer.ship.files.plan import Split
from producer.ship.files.remote import choose, store
from producer.ship.lines.split_lines import read_split
from tests.benchmarks.installation import FOLDER, PATIENCE, locked, once
from tests.support.remote_servers import OSS_KEY, OSS_SECRET, oss_server

from ...conftest import LOGSTORE, PROJECT, contents, server, ship_arguments
from .test_store import PACKERS
from .test_web import read

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

AZURITE = "azurite@3.35.0"
#: The public access key of all emulators.
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

#: ``producer`` with packages of a folder behind those that are installed.
_COMMAND = "import sys; sys.path.append(sys.argv.pop(1)); from producer.cli import main; sys.exit(main(sys.argv[1:]))"


def _installed(name: str, *packages: str) -> Path:
    """Return a folder with packages from the index, made once."""
    target = FOLDER / f"stores-{name}"
    with locked(FOLDER), once(target, " ".join(packages).encode()) as needed:
        if needed:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
            subprocess.run([*pip, "--target", str(target), *packages], check=True, timeout=PATIENCE)
    return target


@pytest.fixture
def ship(server: LogHubServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs ``producer ship`` into the server."""

    def run(address: str, packages: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        arguments = ["ship", *ship_arguments(server, address, "--engine=local", "--workers=2", "--parser=text")]
        command = [sys.executable, "-c", _COMMAND, str(packages), *arguments, "--partition-bytes=300000"]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False)

    return run


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Start a name node with the files, and yield its RPC and HTTP addresses."""
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
    """Write a file to the data node that the name node selects."""
    asked = {"op": "CREATE", "user.name": "root", "overwrite": "true"}
    where = requests.put(url, params=asked, allow_redirects=False, timeout=60).headers["Location"]
    requests.put(where, data=data, timeout=60).raise_for_status()


def test_hadoop_is_read_by_webhdfs(
    hadoop: tuple[str, str], server: LogHubServer, ship: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Files are read by WebHDFS from directories, in ranges and compressed; a missing file is reported."""
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
    """Files are read by the package hdfs-native, without Hadoop's own libraries."""
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
    """ossfs reads below a prefix, by a glob and in ranges; errors are reported."""
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


@pytest.fixture(scope="module")
def azure() -> Iterator[tuple[str, Any]]:
    """Make a container with the files, and yield its environment and a client."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("`npm` was not found: Azure was not tried")
    home = FOLDER / "azurite"
    with locked(FOLDER), once(home, AZURITE.encode()) as needed:
        if needed:
            subprocess.run([npm, "install", "--silent", "--prefix", home, AZURITE], check=True, timeout=PATIENCE)
    options = ("--blobPort=0", "--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck")
    command = [node, str(home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as emulator:
        try:
            while not (said := _read_line(emulator)).startswith("Azurite Blob service successfully listens on "):
                assert said, "it ended"
            asked = (
                f"AccountName=devstoreaccount1;AccountKey={AZURE_KEY};BlobEndpoint={said.split()[-1]}/devstoreaccount1"
            )
            yield asked, _container(asked)
        finally:
            emulator.kill()


def _container(asked: str) -> Any:
    sys.path.append(str(_installed("azure", "adlfs")))  # behind what is installed
    from azure.storage.blob import ContainerClient

    container = ContainerClient.from_connection_string(asked, "logs")
    container.create_container()
    for path, data in FILES.items():
        container.upload_blob(path, data)
    return container


def test_azure_is_read_by_its_own_client(
    azure: tuple[str, Any], server: LogHubServer, ship: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """adlfs reads below a prefix, by a glob and in ranges, with each scheme; errors are reported within seconds."""
    asked, _ = azure
    packages = _installed("azure", "adlfs")
    told = {"AZURE_STORAGE_CONNECTION_STRING": asked}
    done = ship("abfs://logs/app", packages, **told)
    assert done.returncode == 0, done.stderr
    assert sorted(contents(server)) == sorted(BELOW_APP)
    done = ship("az://logs/other/?.lo?", packages, FSSPEC_AZ_CONNECTION_STRING=asked)
    assert done.returncode == 0, done.stderr
    assert contents(server, "az://logs/other/e.log") == ["e"]
    another = {"AZURE_STORAGE_CONNECTION_STRING": asked.replace(AZURE_KEY, AZURE_KEY.swapcase())}
    nobody = {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=;BlobEndpoint=http://127.0.0.1:9/a"}
    for path, environment, said in (
        ("logs/none", told, "not found"),
        ("nobody/a", told, "not found"),
        ("logs/app", another, "access refused"),
        ("logs/app", nobody, "127.0.0.1:9"),
    ):
        began = time.monotonic()
        done = ship(f"abfs://{path}", packages, **environment)
        assert time.monotonic() - began < 60, path  # The client's own retries take four minutes.
        assert done.returncode == 2
        assert said in " ".join(done.stderr.split())
        assert AZURE_KEY.swapcase() not in done.stderr
    assert server.count(PROJECT, LOGSTORE) == len(BELOW_APP) + 1


@pytest.fixture
def here(azure: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the container, readable in this process, too."""
    asked, container = azure
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", asked)
    choose._files.cache_clear()
    yield container
    choose._files.cache_clear()


def test_change_of_a_blob_is_seen_while_it_is_read(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed blob of the same size is detected by its ETag."""
    monkeypatch.setattr(store, "_BLOCK_BYTES", 30_000)
    here.upload_blob("changing.log", FILES["app/a.log"])
    (file,) = Search(["abfs://logs/changing.log"]).all().files
    blocks = read_split(Split(file, 0, file.size), 10_000)
    next(blocks)
    here.upload_blob("changing.log", FILES["app/a.log"][::-1], overwrite=True)
    with pytest.raises(FileChangedError, match="was changed since the job was planned"):
        list(blocks)
    here.delete_blob("changing.log")
    with pytest.raises(FileChangedError, match="was deleted"):
        list(read_split(Split(file, 0, file.size), 10_000))


def test_blob_with_an_encoding_is_read_as_it_is_stored(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob with a content encoding is read as stored: decompressing a part of a gzip file would damage it."""
    from azure.storage.blob import ContentSettings

    monkeypatch.setattr(store, "_BLOCK_BYTES", 30_000)
    packed, encoding = gzip.compress(FILES["app/a.log"]), ContentSettings(content_encoding="gzip")
    here.upload_blob("encoded.log.gz", packed, content_settings=encoding)
    assert read(Search(["abfs://logs/encoded.log.gz"]).all()) == {"abfs://logs/encoded.log.gz": FILES["app/a.log"]}


def test_odd_names_of_blobs_are_found_and_read(here: Any) -> None:
    """A glob that ends with ``?``, and names with special characters of addresses, find their blobs."""
    names = ("a b", "p%41", "h#x", "q?y", "é", "plus+", "br[1]")
    for name in names:
        here.upload_blob(f"odd/{name}.log", f"{name}\n".encode())
    expected = {f"abfs://logs/odd/{name}.log": f"{name}\n".encode() for name in names}
    assert read(Search(["abfs://logs/odd"]).all()) == expected
    for address, data in expected.items():
        assert read(Search([address]).all()) == {address: data}
    assert set(read(Search(["abfs://logs/app/x.g?"]).all())) == {"abfs://logs/app/x.gz"}
