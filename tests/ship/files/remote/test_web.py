"""Files of web servers: ranges if the server supports them, else whole files; errors in plain words."""

import base64
import gzip
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.ship.errors import FileChangedError, InputError
from producer.ship.files.find import Found, Search
from producer.ship.files.plan import Split, cut
from producer.ship.files.remote import address
from producer.ship.files.remote.seen import RemoteError
from producer.ship.lines.line import Block
from producer.ship.lines.split_lines import read_split
from tests.support.remote_servers import answering, plain_web_server, web_server
from tests.support.waiting import allowed

LINES = [b"line %d" % number for number in range(20_000)]
TEXT = b"\n".join(LINES) + b"\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs" / "old").mkdir(parents=True)
    (tmp_path / "logs" / "a.log").write_bytes(TEXT)
    (tmp_path / "logs" / "b.log.gz").write_bytes(gzip.compress(TEXT))
    (tmp_path / "logs" / "empty.log").write_bytes(b"")
    (tmp_path / "logs" / "binary").write_bytes(b"\0\0")
    (tmp_path / "logs" / ".hidden").write_bytes(b"no\n")
    (tmp_path / "logs" / "old" / "a b.log").write_bytes(b"old\n")
    return tmp_path


@pytest.fixture
def ranged(folder: Path) -> Iterator[str]:
    with web_server(folder) as url:
        yield url


@pytest.fixture
def plain(folder: Path) -> Iterator[str]:
    with plain_web_server(folder) as url:
        yield url


def read(found: Found, partition_bytes: int = 50_000) -> dict[str, bytes]:
    """Return the content of files, read in ranges, by path."""
    return {
        file.path: b"".join(
            lines.data
            for split in cut(file, 0, file.size, partition_bytes=partition_bytes)
            for lines in read_split(split, 10_000)
            if isinstance(lines, Block)
        )
        for file in found.files
    }


def test_file_is_read_in_ranges(ranged: str) -> None:
    """A file is read in ranges, each line once, also a compressed one."""
    found = Search([f"{ranged}/logs/a.log", f"{ranged}/logs/b.log.gz", f"{ranged}/logs/empty.log"]).all()
    assert [(file.ranged, file.compression, file.size > 0) for file in found.files] == [
        (True, None, True),
        (True, "gzip", True),
        (True, None, False),
    ]
    assert list(read(found).values()) == [TEXT, TEXT, b""]


def test_server_without_ranges_sends_a_file_as_a_whole(plain: str) -> None:
    """A file of a server without ranges is one range, and is read once."""
    found = Search([f"{plain}/logs/a.log"]).all()
    (file,) = found.files
    assert (file.ranged, file.size) == (False, len(TEXT))
    assert len(list(cut(file, 0, file.size, partition_bytes=1000))) == 1
    assert list(read(found).values()) == [TEXT]


def test_a_listed_directory_yields_the_files_below_it_hidden_and_binary_ones_are_reported(plain: str) -> None:
    """A listed directory yields the files below it; hidden and binary ones are reported."""
    found = Search([f"{plain}/logs/"]).all()
    assert [file.path.removeprefix(plain) for file in found.files] == [
        "/logs/a.log",
        "/logs/b.log.gz",
        "/logs/empty.log",
        "/logs/old/a%20b.log",
    ]
    assert [(path.rpartition("/")[2], why) for path, why in found.skipped] == [
        (".hidden", "hidden"),
        ("binary", "binary"),
    ]
    assert b"old\n" in read(found).values()


def test_in_a_glob_one_star_stays_in_a_folder_and_two_cross_folders_no_match_is_an_error(plain: str) -> None:
    """In a glob, one star stays in a folder, and two cross folders; no match is an error."""
    names = [file.path.rpartition("/")[2] for file in Search([f"{plain}/logs/*.log"]).all().files]
    assert names == ["a.log", "empty.log"]
    assert len(Search([f"{plain}/**/*.log"], exclude=["empty*"]).all().files) == 2
    with pytest.raises(InputError, match="no file matches this pattern"):
        Search([f"{plain}/logs/*.txt"]).all()


def test_a_file_that_changes_while_it_is_read_fails_its_range(folder: Path, ranged: str) -> None:
    """A file that changes while it is read fails its range, and the error has the old and new version."""
    (file,) = Search([f"{ranged}/logs/a.log"]).all().files
    reading = read_split(Split(file, 0, file.size), 10_000)
    next(reading)
    (folder / "logs" / "a.log").write_bytes(TEXT[::-1])
    os.utime(folder / "logs" / "a.log", (1, 1))
    with pytest.raises(
        FileChangedError, match=r"a.log: was changed since the job was planned \(then 208890 bytes, etag="
    ):
        list(reading)
    (folder / "logs" / "a.log").unlink()
    with pytest.raises(FileChangedError, match="was deleted"):
        list(read_split(Split(file, 0, file.size), 10_000))


def test_address_is_shown_without_its_secrets(folder: Path, ranged: str) -> None:
    """Passwords and signatures are in no path, tag or message."""
    secret = ranged.replace("http://", "http://user:hunter2@")
    found = Search([f"{secret}/logs/a.log?X-Amz-Signature=abcdef", f"{secret}/logs/a.log?X-Amz-Signature=ghi"]).all()
    assert len(found.files) == 2
    assert all("hunter2" not in file.path and "Signature" not in file.path for file in found.files)
    assert set(read(found).values()) == {TEXT}
    (folder / "logs" / "a.log").unlink()
    for call in (lambda: Search([f"{secret}/logs/a.log?X-Amz-Signature=abcdef"]).all(), lambda: read(found)):
        with pytest.raises((InputError, FileChangedError)) as raised:
            call()
        assert "/logs/a.log" in str(raised.value)
        assert "hunter2" not in str(raised.value)
        assert "abcdef" not in str(raised.value)


def test_key_in_a_connection_string_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key in a connection string of Azure is not shown."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=mine;AccountKey=c2VjcmV0LXNlY3JldA==;X=y")
    said = address.without_secrets("bad: AccountKey=c2VjcmV0LXNlY3JldA== of mine", "abfs://logs/a")
    assert said == "bad: AccountKey=*** of mine"


def test_a_stores_address_is_shown_without_its_password() -> None:
    """The address of a store is shown without its password, but with users, hosts and an at sign in a key."""
    assert address.shown("webhdfs://me:hunter2@name.node:9870/logs/a.log") == "webhdfs://name.node:9870/logs/a.log"
    for plain in ("abfs://container@account.dfs/a:b.log", "s3://bucket/me:word@home.log", "hdfs://me@node/a"):
        assert address.shown(plain) == plain


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (401, {}, "access refused, the server answered 401 Unauthorized; credentials come from"),
        (403, {}, "a signed address may have expired"),
        (404, {}, "not found, the server answered 404"),
        (500, {}, "the server answered 500"),
        (200, {}, "sends no length; ship it as: curl -sf URL | producer ship -"),
    ],
)
def test_the_error_of_a_refused_request_has_the_status_and_the_remedy(
    status: int, headers: dict[str, str], said: str
) -> None:
    """The error of a refused request has the status and the remedy."""
    with answering(status, headers) as url:
        with pytest.raises(InputError) as raised:
            Search([f"{url}/a.log"]).all()
        assert said in str(raised.value)


def test_credentials_of_a_web_server_come_from_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials of a web server are read from ~/.netrc."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    wants = f"Basic {base64.b64encode(b'me:hunter2').decode()}"
    with answering(200, {"Content-Length": "5"}, b"line\n", wants=wants) as url:
        with pytest.raises(InputError, match=r"access refused.* or ~/\.netrc"):
            Search([f"{url}/a.log"]).all()
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        assert read(Search([f"{url}/a.log"]).all()) == {f"{url}/a.log": b"line\n"}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("status", "said"),
    [(407, "requires a user and password"), (502, "")],
    ids=["who is there", "no way"],
)
def test_a_refusal_by_the_proxy_is_reported_as_such_not_as_one_by_the_server(
    scheme: str, status: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal by the proxy is reported as such, not as one by the server."""
    with answering(status, {"Content-Length": "0"}) as url:
        monkeypatch.setenv(f"{scheme}_proxy", url.replace("//", "//me:hidden@"))
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(InputError) as raised:
            Search([f"{scheme}://far.test/a.log"]).all()
    assert said in str(raised.value)
    # A plain 502 may come from the server behind the proxy.
    assert "the proxy of the environment" in str(raised.value) or (scheme, status) == ("http", 502)
    assert "hidden" not in str(raised.value)


def test_an_unreachable_address_is_reported_within_seconds_without_a_trace_of_the_library() -> None:
    """An unreachable address is reported within seconds, without a trace of the library."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(InputError, match="no connection to the server"):
        Search([f"http://127.0.0.1:{port}/a.log"]).all()
    assert time.monotonic() - began < allowed(10)


def test_connection_that_ends_early_is_an_error() -> None:
    """A connection that ends early is an error, not the end of the file."""
    with answering(200, {"Content-Length": "20000"}, b"line\n" * 2000) as url:
        (file,) = Search([f"{url}/a.log"]).all().files
        with pytest.raises(RemoteError, match="the connection ended before the file did"):
            list(read_split(Split(file, 0, file.size), 1000))
