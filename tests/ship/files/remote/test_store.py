"""Files of an object store, from an S3 endpoint on this machine."""

import bz2
import gzip
import importlib.util
import lzma
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, ClassVar
from urllib.parse import urlsplit

import boto3
import fsspec
import lz4.frame
import pytest
from fsspec.registry import _registry

from producer.ship.errors import FileChangedError, InputError
from producer.ship.files.find import Search
from producer.ship.files.plan import Split
from producer.ship.files.remote import choose, store
from producer.ship.files.remote.seen import version_of
from producer.ship.lines.split_lines import read_split
from producer.wire.zstd import zstd
from tests.support.remote_servers import ACCESS_KEY, SECRET_KEY, s3_server, webhdfs_server
from tests.support.waiting import allowed

from .test_web import TEXT, read

BUCKET = "logs"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd.compress,
    "lz4": lz4.frame.compress,
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a client of the endpoint, with an empty bucket and the environment of a user."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)
    choose._files.cache_clear()
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")).close()
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket=BUCKET)
    yield client
    client.close()
    choose._files.cache_clear()


def environment(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def put(s3: Any, **objects: bytes) -> None:
    for name, data in objects.items():
        s3.put_object(Bucket=BUCKET, Key=name.replace("__", "/"), Body=data)


def test_objects_below_a_prefix_are_found_and_read_in_ranges(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects below a prefix are read in ranges, each line once, even if a block ends before its range."""
    monkeypatch.setattr(store, "_BLOCK_BYTES", 30_000)
    put(s3, app__a=TEXT, app__2024__b=b"b\n", app__binary=b"\0", app__empty=b"", other__c=b"c\n")
    for path in (f"s3://{BUCKET}/app", f"s3://{BUCKET}/app/"):
        found = Search([path]).all()
        assert read(found) == {
            f"s3://{BUCKET}/app/{name}": data for name, data in {"2024/b": b"b\n", "a": TEXT, "empty": b""}.items()
        }
        assert found.skipped == ((f"s3://{BUCKET}/app/binary", "binary"),)
    assert [file.path for file in Search([f"s3://{BUCKET}/*/[bc]"]).all().files] == [f"s3://{BUCKET}/other/c"]
    assert len(Search([f"s3://{BUCKET}/ap*"], exclude=["empty"]).all().files) == 2


def test_a_replaced_object_of_the_same_size_is_detected_by_its_etag(s3: Any) -> None:
    """A replaced object of the same size is detected by its ETag."""
    put(s3, a=TEXT)
    (file,) = Search([f"s3://{BUCKET}/a"]).all().files
    assert "etag=" in file.version
    put(s3, a=TEXT[::-1])
    with pytest.raises(FileChangedError, match="was changed since the job was planned"):
        list(read_split(Split(file, 0, file.size), 10_000))
    s3.delete_object(Bucket=BUCKET, Key="a")
    with pytest.raises(FileChangedError, match="was deleted"):
        list(read_split(Split(file, 0, file.size), 10_000))


def test_a_missing_bucket_or_object_is_reported_within_seconds(s3: Any) -> None:
    """A missing bucket or object is reported within seconds."""
    began = time.monotonic()
    for path in ("s3://nobody/a.log", f"s3://{BUCKET}/no/such", "s3://nobody/*.log"):
        with pytest.raises(InputError, match=r"not found|no file matches"):
            Search([path]).all()
    assert time.monotonic() - began < allowed(10)


def test_rejected_credentials_are_reported_within_seconds_without_the_secret(
    s3: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejected credentials are reported within seconds, without the secret."""
    put(s3, a=TEXT)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret-key")
    choose._files.cache_clear()
    set_authentication(endpoint, "0")
    try:
        began = time.monotonic()
        with pytest.raises(InputError) as raised:
            Search([f"s3://{BUCKET}/a"]).all()
        assert time.monotonic() - began < allowed(10)
    finally:
        set_authentication(endpoint, "inf")
    assert f"s3://{BUCKET}/a: access refused" in str(raised.value)
    assert "another-secret-key" not in str(raised.value)
    assert ACCESS_KEY not in str(raised.value)


def set_authentication(endpoint: str, after: str) -> None:
    """Make the endpoint check credentials after a number of requests."""
    headers = {"Content-Type": "text/plain"}
    request = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", after.encode(), headers, method="POST")
    urllib.request.urlopen(request).close()


def test_an_unreachable_endpoint_is_reported_within_seconds(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreachable endpoint is reported within seconds."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    choose._files.cache_clear()
    began = time.monotonic()
    with pytest.raises(InputError, match=r"127\.0\.0\.1:9"):
        Search([f"s3://{BUCKET}/a"]).all()
    assert time.monotonic() - began < allowed(15)


@pytest.mark.parametrize(
    ("path", "install"),
    [
        ("s3://b/a", "[s3]'"),
        ("oss://b/a", "ossfs"),
        ("gs://b/a", "gcsfs"),
        ("abfs://c/a", "adlfs"),
        ("hdfs://h/a", "hdfs-native"),
    ],
)
def test_missing_package_is_named_with_how_to_install_it(
    path: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error for a missing package has the pip command that installs it."""
    choose._files.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"which is not installed: (PRODUCER_BUILD=pure )?pip install ") as raised:
        Search([path]).all()
    assert str(raised.value).endswith(install)


def test_webhdfs_uses_the_host_of_the_address_below_a_directory_by_a_glob_in_ranges_and_compressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """WebHDFS uses the host of the address: below a directory, by a glob, in ranges and compressed; no host is an
    error.
    """
    monkeypatch.setattr(store, "_BLOCK_BYTES", 30_000)
    packed = {suffix: pack(b"packed\n") for suffix, pack in PACKERS.items()}
    files = {
        "/app/a.log": TEXT,
        "/app/b/c d.log": b"c\n",
        **{f"/app/x.{suffix}": data for suffix, data in packed.items()},
    }
    with webhdfs_server(files) as url:
        root = url.replace("http", "webhdfs") + "/app"
        found = read(Search([root]).all())
        assert found == {f"{root}/a.log": TEXT, f"{root}/b/c d.log": b"c\n"} | {
            f"{root}/x.{suffix}": b"packed\n" for suffix in PACKERS
        }
        assert read(Search([f"{root}/*.log"]).all()) == {f"{root}/a.log": TEXT}
        with pytest.raises(InputError, match="not found"):
            Search([f"{root}/none"]).all()
    with pytest.raises(InputError, match="needs the host of the name node"):
        Search(["webhdfs:///app"]).all()


def test_a_question_mark_in_a_path_of_hadoop_is_part_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``?`` in a path of Hadoop is part of the name; fsspec would drop the text after it."""
    files = {"/app/a": b"another\n", "/app/a1.log": b"1\n", "/app/a?b.log": b"odd\n", "/app/a#c.log": b"odd\n"}
    choose._files.cache_clear()
    with webhdfs_server(files) as url:
        root = url.replace("http", "webhdfs") + "/app"
        expected = {f"{url.replace('http', 'webhdfs')}{path}": data for path, data in files.items()}
        assert read(Search([root]).all()) == expected
        assert set(read(Search([f"{root}/a?.log"]).all())) == {f"{root}/a1.log"}
        assert read(Search([f"{root}/a?b.log"]).all()) == {f"{root}/a?b.log": b"odd\n"}


def test_name_that_a_package_would_shorten_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that a package would shorten is refused, as the package would read another file."""

    class Shortening(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]  # its class is found at run time
        protocol = "hdfs"
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return urlsplit(path).path.rstrip("/")

    monkeypatch.setitem(_registry, "hdfs", Shortening)
    monkeypatch.setitem(store.STORES, "hdfs", ("fsspec", ""))
    choose._files.cache_clear()
    Shortening(host="h").pipe({"/app/a": b"another\n"})
    with pytest.raises(InputError, match=r"the package for hdfs:// cannot read a name with"):
        Search(["hdfs://h/app/a#b"]).all()
    assert len(Search(["hdfs://h/app/?"]).all().files) == 1
    choose._files.cache_clear()


def test_name_with_wildcards_that_is_there_is_that_file(s3: Any) -> None:
    """A name with wildcards that exists is that file, as on a disk."""
    put(s3, **{"app__b[1].log": b"1\n", "app__b1.log": b"2\n"})
    assert [file.path for file in Search([f"s3://{BUCKET}/app/b[1].log"]).all().files] == [
        f"s3://{BUCKET}/app/b[1].log"
    ]
    for pattern in ("b[0-9].log", "b?.log"):
        assert [file.path for file in Search([f"s3://{BUCKET}/app/{pattern}"]).all().files] == [
            f"s3://{BUCKET}/app/b1.log"
        ]


def test_hadoops_own_protocol_without_its_libraries_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Hadoop's libraries the error names the package, not the paths searched for a library."""
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", "/none")
    monkeypatch.setenv("JAVA_HOME", "/none")
    choose._files.cache_clear()
    with pytest.raises(InputError, match=r"^hdfs:// needs the package hdfs-native.*: pip install hdfs-native;"):
        Search(["hdfs://127.0.0.1:9/app"]).all()


def test_time_of_a_file_is_its_version_in_each_spelling() -> None:
    """The modification time of Hadoop's three packages is a version; without one, changes are not detected."""
    for name in ("modificationTime", "modification_time", "mtime"):
        assert version_of({"name": "/a", "size": 1, name: 7}) == f"{name.lower()}=7"


class Accounts(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]  # its class is found at run time
    """A file system like adlfs: the account is an option, and no part of a path."""

    protocol = ("abfss", "az")
    asked: ClassVar[list[str]] = []
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def __init__(self, account_name: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.asked.append(account_name)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        host = urlsplit(path).hostname or ""
        return {"account_name": host.partition(".")[0]} if "@" in path else {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        scheme, _, plain = path.rpartition("://")
        container, _, rest = plain.lstrip("/").partition("/")
        return f"/{container.partition('@')[0]}/{rest}".rstrip("/") if scheme else f"/{plain.strip('/')}".rstrip("/")


class Oss(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]  # its class is found at run time
    """A file system like ossfs: sizes come from a cache of listings, and each range is a byte too long."""

    protocol = "oss"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        assert options.get("use_listings_cache", True)
        self._known: dict[str, Any] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return f"/{path.rpartition('://')[2].strip('/')}"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        if path not in self._known:
            self._known[path] = super().info(path, **options)
        return self._known[path]  # type: ignore[no-any-return]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        return bytes(super().cat_file(path, start, None if end is None else end + 1, **options))


def test_changes_of_an_oss_file_are_detected_despite_the_cache_and_its_ranges_end_correctly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Changes of an OSS file are detected despite the cache, and its ranges end correctly."""
    fsspec.register_implementation("oss", Oss, clobber=True)
    monkeypatch.setitem(store.STORES, "oss", ("fsspec", ""))
    choose._files.cache_clear()
    Oss().pipe({"/logs/a": TEXT})
    (file,) = Search(["oss://logs/a"]).all().files
    assert (file.size, file.compression) == (len(TEXT), None)
    Oss().pipe({"/logs/a": TEXT + b"more\n"})
    with pytest.raises(FileChangedError, match="was changed since the job was planned"):
        list(read_split(Split(file, 0, file.size), 10_000))


def test_found_address_keeps_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """A found address keeps its account (``container@account``), as the user wrote it."""
    fsspec.register_implementation("abfss", Accounts, clobber=True)
    fsspec.register_implementation("az", Accounts, clobber=True)
    monkeypatch.setitem(store.STORES, "abfss", ("fsspec", ""))
    monkeypatch.setitem(store.STORES, "az", ("fsspec", ""))
    choose._files.cache_clear()
    Accounts().pipe({"/logs/app/a": b"a\n"})
    for root, account in (("abfss://logs@mine.dfs.core.windows.net", "mine"), ("az://logs", "")):
        for path in (f"{root}/app/a", f"{root}/app", f"{root}/app/*"):
            assert [file.address for file in Search([path]).all().files] == [f"{root}/app/a"]
            assert Accounts.asked[-1] == account


def test_found_address_has_the_scheme_that_the_user_wrote(s3: Any) -> None:
    """A found address has the scheme that the user wrote, even for a synonym of the store."""
    put(s3, app__a=b"a\n")
    for scheme in ("s3", "s3a"):
        address = f"{scheme}://{BUCKET}/app/a"
        for path in (address, f"{scheme}://{BUCKET}/app", f"{scheme}://{BUCKET}/app/*"):
            assert [(file.path, file.address) for file in Search([path]).all().files] == [(address, address)]
