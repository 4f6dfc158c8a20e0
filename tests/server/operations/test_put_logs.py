import threading
import zlib
from pathlib import Path

import pytest

from producer.server import Limits, LogHubServer
from producer.wire.compression import compress
from producer.wire.schema import LogGroup, LogPackageList

from ..client import LOGSTORE, PROJECT, Client, error_of, log_group
from ..process import MIB, ServerProcess


def messages(server: LogHubServer) -> list[object]:
    return [log.fields["message"] for log in server.logs(PROJECT, LOGSTORE)]


def route(seqid: int | str, key: str = "0a") -> dict[str, str]:
    return {"key": key, "seqid": str(seqid)}


@pytest.mark.parametrize("compression", ["lz4", "zstd", "deflate", "none"])
@pytest.mark.parametrize("sign_version", [1, 4])
def test_a_log_group_is_kept_byte_for_byte_in_each_compression_and_signature(
    server: LogHubServer, client: Client, compression: str, sign_version: int
) -> None:
    """A LogGroup answered 200 is stored byte for byte, in each compression and signature version."""
    raw = log_group("one", "two", topic="web", tags={"__pack_id__": "A-1"})
    client.sign_version = sign_version
    answer = client.put(raw, compression=compression)
    assert (answer.status_code, answer.content) == (200, b"")
    (group,) = server.log_groups(PROJECT, LOGSTORE)
    assert raw == group.raw
    assert (group.count, group.topic, group.pack_id) == (2, "web", "A-1")


@pytest.mark.parametrize("path", ["", "/shards/lb", "/shards/route"])
def test_each_documented_path_takes_logs(server: LogHubServer, client: Client, path: str) -> None:
    """The bare logstore, /shards/lb and /shards/route all store logs."""
    params = {"key": "7f" + "0" * 30} if path.endswith("route") else None
    assert client.put(log_group("hello"), path=path, params=params).status_code == 200
    assert messages(server) == ["hello"]


def test_all_parts_of_a_log_are_stored_as_sent(server: LogHubServer, client: Client) -> None:
    """Time, nanoseconds, repeated keys, the order of contents, topic, source and tags are stored as sent."""
    group = LogGroup(Topic="t", Source="10.0.0.1")
    log = group.Logs.add(Time=5, Time_ns=999_999_999)
    for key, value in [("b", b"1"), ("a", b"\xff"), ("b", "é".encode()), ("", b"")]:
        log.Contents.add(Key=key, Value=value)
    group.LogTags.add(Key="host", Value="web-1")
    client.put(group.SerializeToString())
    (stored,) = server.logs(PROJECT, LOGSTORE)
    assert (
        *(stored.time, stored.time_ns, stored.topic, stored.source),
        *(stored.tags, stored.pack_id),
    ) == (5, 999_999_999, "t", "10.0.0.1", {"host": "web-1"}, None)
    assert stored.contents == [("b", "1"), ("a", b"\xff"), ("b", "é"), ("", "")]


def test_lb_spreads_log_groups_over_the_shards(server: LogHubServer, client: Client) -> None:
    """Writes without a key go to every shard in turn."""
    for number in range(6):
        client.put(log_group(str(number)))
    assert [group.shard for group in server.log_groups(PROJECT, LOGSTORE)] == [0, 1, 0, 1, 0, 1]
    assert [group.position for group in server.log_groups(PROJECT, LOGSTORE)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("key", "shard"), [("0" * 32, 0), ("7" + "f" * 31, 0), ("8" + "0" * 31, 1), ("f" * 32, 1), ("8", 1), ("FF", 1)]
)
def test_a_write_by_key_goes_to_the_shard_whose_range_has_the_key_begin_included_end_excluded(
    server: LogHubServer, client: Client, key: str, shard: int
) -> None:
    """A write by key goes to the shard whose range has the key, begin included, end excluded."""
    assert client.put(log_group("x"), path="/shards/route", params={"key": key}).status_code == 200
    assert [shard] == [group.shard for group in server.log_groups(PROJECT, LOGSTORE)]


@pytest.mark.parametrize(
    "params",
    [
        *({"key": key} for key in ("", "xyz", "0" * 33, "-1", "0x10", "\uff11")),
        None,
        *(route(seqid) for seqid in ("", "-1", "1.5", "x", str(1 << 63))),
    ],
)
def test_a_key_or_number_out_of_rule_is_refused(
    server: LogHubServer, client: Client, params: dict[str, str] | None
) -> None:
    """A missing or invalid key, or an invalid seqid, is refused, and creates no logstore."""
    assert error_of(client.put(log_group("x"), path="/shards/route", params=params)) == (400, "ParameterInvalid")
    assert server.count(PROJECT, LOGSTORE) == 0


def test_a_sequence_number_is_stored_once(server: LogHubServer, client: Client) -> None:
    """A seqid not above its key's last one is InvalidSequenceId, and nothing is stored."""
    assert client.put(log_group("a"), path="/shards/route", params=route(1)).status_code == 200
    for repeated in (1, 0):
        answer = client.put(log_group("a"), path="/shards/route", params=route(repeated))
        assert error_of(answer) == (400, "InvalidSequenceId")
    assert client.put(log_group("b"), path="/shards/route", params=route(7)).status_code == 200
    assert messages(server) == ["a", "b"]


def test_sequence_numbers_belong_to_a_key_of_a_logstore(server: LogHubServer, client: Client) -> None:
    """The same seqid under another key or in another logstore is a separate write."""
    for params, logstore in [(route(1), LOGSTORE), (route(1, "0b"), LOGSTORE), (route(1), "other")]:
        answer = client.put(log_group("x"), path="/shards/route", params=params, logstore=logstore)
        assert answer.status_code == 200
    # A short key equals its zero-filled form.
    full = client.put(log_group("x"), path="/shards/route", params=route(1, "0A" + "0" * 30))
    assert error_of(full) == (400, "InvalidSequenceId")


def test_sequence_numbers_outlive_the_server(tmp_path: Path) -> None:
    """With a data directory a repeated seqid is refused after a restart, too."""
    for status in (200, 400):
        with LogHubServer(data=tmp_path) as server, Client(server) as client:
            assert status == client.put(log_group("x"), path="/shards/route", params=route(3)).status_code
            assert server.count(PROJECT, LOGSTORE) == 1


def packages(*contents: tuple[bytes, int | None], sizes: bool = True) -> bytes:
    kinds = {0: "none", 1: "deflate", 2: "lz4", 3: "zstd", None: "lz4"}
    batch = LogPackageList()
    for raw, kind in contents:
        package = batch.packages.add(data=compress(raw, kinds[kind]))
        if sizes:
            package.uncompress_size = len(raw)
        if kind is not None:
            package.compress_type = kind
    return bytes(batch.SerializeToString())


def test_batch_mode_stores_every_package(server: LogHubServer, client: Client) -> None:
    """A batch_group request stores all its LogGroups, each in its own compression, in one shard and in order."""
    kinds = [0, 1, 2, 3, None]
    body = packages(*((log_group(str(kind)), kind) for kind in kinds))
    answer = client.put(body, compression="none", headers={"x-log-mode": "batch_group"})
    assert answer.status_code == 200, answer.text
    assert [str(kind) for kind in kinds] == messages(server)
    assert len({group.shard for group in server.log_groups(PROJECT, LOGSTORE)}) == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"garbage", packages((log_group("fine"), 0), (b"garbage", 0)), packages((log_group("x"), None), sizes=False)],
)
def test_a_batch_with_one_bad_package_stores_nothing(server: LogHubServer, client: Client, body: bytes) -> None:
    """A batch with one invalid package stores nothing."""
    answer = client.put(body, compression="none", headers={"x-log-mode": "batch_group"})
    assert answer.status_code == 400
    assert answer.json()["errorCode"] in ("PostBodyInvalid", "PostBodyUncompressError")
    assert server.count(PROJECT, LOGSTORE) == 0


@pytest.mark.parametrize("kind", [0, 1, 2, 3, None])
def test_packages_that_are_too_large_together_are_413_postbodytoolarge_and_nothing_is_stored(kind: int | None) -> None:
    """Packages that are too large together are 413 PostBodyTooLarge, and nothing is stored."""
    raw = log_group("x" * 600)
    with LogHubServer(limits=Limits(raw_bytes=2 * len(raw))) as server, Client(server) as client:
        for count, status in [(2, 200), (3, 413)]:
            body = packages(*[(raw, kind)] * count)
            answer = client.put(body, compression="none", headers={"x-log-mode": "batch_group"})
            assert answer.status_code == status, answer.text
        assert error_of(answer) == (413, "PostBodyTooLarge")
        assert server.count(PROJECT, LOGSTORE) == 2


def test_a_batch_is_checked_by_its_declared_sizes_first_a_damaged_first_package_is_not_decompressed() -> None:
    """A batch is checked by its declared sizes first: a damaged first package is not decompressed."""
    batch = LogPackageList()
    for _ in range(2):
        batch.packages.add(data=b"damaged", uncompress_size=600, compress_type=3)
    with LogHubServer(limits=Limits(raw_bytes=1000)) as server, Client(server) as client:
        answer = client.put(batch.SerializeToString(), compression="none", headers={"x-log-mode": "batch_group"})
        assert error_of(answer) == (413, "PostBodyTooLarge")


def test_a_batch_of_too_many_packages_is_refused() -> None:
    """The limit of packages is accepted, one more is PostBodyInvalid."""
    with LogHubServer(limits=Limits(packages=3)) as server, Client(server) as client:
        for count, status in [(3, 200), (4, 400)]:
            body = packages(*[(log_group("x"), 2)] * count)
            answer = client.put(body, compression="none", headers={"x-log-mode": "batch_group"})
            assert answer.status_code == status, answer.text
        assert error_of(answer) == (400, "PostBodyInvalid")


NO_TIME = bytes.fromhex("0a00")
BAD_KEY = bytes.fromhex("0a0a080112060a02fffe1200")
TRUNCATED = log_group("hello")[:-1]


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"garbage", "PostBodyInvalid"),
        (b"\x00" * 100, "PostBodyInvalid"),
        (TRUNCATED, "PostBodyInvalid"),
        (NO_TIME, "PostBodyInvalid"),
        (b"", "PostBodyInvalid"),
        (BAD_KEY, "InvalidEncoding"),
        (log_group("x") + b"\x1a\x01\xff", "InvalidEncoding"),
    ],
)
def test_invalid_protobuf_missing_required_fields_and_keys_or_topics_that_are_not_utf_8_are_refused(
    server: LogHubServer, client: Client, raw: bytes, code: str
) -> None:
    """Invalid protobuf, missing required fields, and keys or topics that are not UTF-8 are refused."""
    assert (400, code) == error_of(client.put(raw, compression="none"))
    assert server.count(PROJECT, LOGSTORE) == 0


@pytest.mark.parametrize("compression", ["lz4", "zstd", "deflate"])
def test_a_body_that_does_not_decompress_is_refused(client: Client, compression: str) -> None:
    """A body that does not decompress is PostBodyUncompressError."""
    answer = client.put(b"\xfe\xff garbage " * 9, compression="none", headers={"x-log-compresstype": compression})
    assert error_of(answer) == (400, "PostBodyUncompressError")


@pytest.mark.parametrize("compression", ["lz4", "zstd", "deflate", "none"])
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x-log-bodyrawsize": str(len(log_group("x")) - 1)}, "PostBodyUncompressError"),
        ({"x-log-bodyrawsize": str(len(log_group("x")) + 1)}, "PostBodyUncompressError"),
        ({"x-log-bodyrawsize": "many"}, "ParameterInvalid"),
        ({"x-log-bodyrawsize": "-5"}, "ParameterInvalid"),
        ({"x-log-bodyrawsize": None}, "MissingBodyRawSize"),
        ({"x-log-compresstype": "gzip"}, "ParameterInvalid"),
        ({"Content-Type": "application/json"}, "InvalidContentType"),
        ({"x-log-apiversion": "0.5.0"}, "InvalidAPIVersion"),
    ],
)
def test_a_wrong_header_is_refused_with_its_own_code(
    client: Client, compression: str, headers: dict[str, str | None], code: str
) -> None:
    """Each invalid header has its documented refusal.

    x-log-bodyrawsize must be the exact size before compression, since it bounds the decompression.
    """
    assert (400, code) == error_of(client.put(log_group("x"), compression=compression, headers=headers))


def test_a_log_group_of_the_limit_is_stored_and_one_byte_more_is_413(server: LogHubServer, client: Client) -> None:
    """A LogGroup of 10 MiB before compression is stored, one byte more is PostBodyTooLarge, in every compression."""
    limit = 10 * 1024 * 1024
    head = len(log_group("")) + 9
    fitting = log_group(b"x" * (limit - head))
    assert limit == len(fitting)
    assert client.put(fitting).status_code == 200
    for compression in ("lz4", "zstd", "deflate", "none"):
        answer = client.put(log_group(b"x" * (limit - head + 1)), compression=compression)
        assert error_of(answer) == (413, "PostBodyTooLarge")
    assert server.count(PROJECT, LOGSTORE) == 1


@pytest.mark.parametrize("size", [30_000_000, 70_000_000])
def test_a_client_that_sends_far_too_much_still_reads_the_refusal(
    server: LogHubServer, client: Client, size: int
) -> None:
    """A client that sends far too much still reads the refusal, and the server answers the next request."""
    answer = client.put(b"\x00" * size, compression="none", headers={"x-log-bodyrawsize": "5"})
    assert error_of(answer) == (413, "PostBodyTooLarge")
    assert client.put(log_group("next")).status_code == 200


@pytest.mark.parametrize("compression", ["zstd", "deflate"])
def test_a_decompression_bomb_is_refused_without_being_unpacked(client: Client, compression: str) -> None:
    """A small body that decompresses to 1 GB is refused at the small size that it declares."""
    if compression == "deflate":
        packer = zlib.compressobj(9)
        bomb = b"".join(packer.compress(b"\x00" * 10_000_000) for _ in range(20)) + packer.flush()
    else:
        bomb = compress(b"\x00" * 200_000_000, "zstd")
    answer = client.put(
        bomb, compression="none", headers={"x-log-compresstype": compression, "x-log-bodyrawsize": "1000000"}
    )
    assert error_of(answer) == (400, "PostBodyUncompressError")


def test_too_many_logs_in_a_loggroup_are_refused_with_both_numbers_in_the_message() -> None:
    """Too many logs in a LogGroup are refused, with both numbers in the message."""
    with LogHubServer(limits=Limits(logs=3)) as server, Client(server) as client:
        assert client.put(log_group("1", "2", "3")).status_code == 200
        answer = client.put(log_group("1", "2", "3", "4"))
        assert error_of(answer) == (400, "PostBodyInvalid")
        assert "4 logs: 1 to 3 are allowed" in answer.text
        assert "4" in answer.text


def test_without_auto_create_a_write_to_a_missing_project_or_logstore_is_refused_with_its_code() -> None:
    """Without auto_create a write to a missing project or logstore is refused with its code."""
    with LogHubServer(auto_create=False) as server, Client(server) as client:
        assert error_of(client.put(log_group("x"))) == (404, "ProjectNotExist")
        client.post_json("/", b'{"projectName": "my-project", "description": ""}')
        assert error_of(client.put(log_group("x"))) == (404, "LogStoreNotExist")
        client.post_json("/logstores", b'{"logstoreName": "app-log", "ttl": 1, "shardCount": 1}')
        assert client.put(log_group("x")).status_code == 200


@pytest.mark.parametrize("logstore", ["-x", "a b", "x" * 129])
def test_a_logstore_name_out_of_rule_is_refused(server: LogHubServer, client: Client, logstore: str) -> None:
    """A write to an invalid logstore name is refused and creates nothing."""
    assert error_of(client.put(log_group("x"), logstore=logstore)) == (400, "ParameterInvalid")
    assert server.count(PROJECT, logstore) == 0


@pytest.mark.parametrize(
    ("unit", "code"),
    [
        (b"\x0a\x00", "PostBodyInvalid"),  # logs without a time
        (b"\x0a\x02\x08\x01", "PostBodyInvalid"),  # more logs than allowed
        (b"\x32\x04\x0a\x00\x12\x00", "PostBodyInvalid"),  # tags without a log
    ],
)
def test_bodies_of_many_tiny_parts_take_bounded_memory(unit: bytes, code: str) -> None:
    """Three concurrent bodies of 10 MiB in tiny parts are decoded one at a time, and refused."""
    raw = unit * (10 * MIB // len(unit))
    answers: list[tuple[int, str]] = []
    with ServerProcess() as server, Client(server) as client:
        before = server.peak()

        def put() -> None:
            with Client(server) as other:
                answers.append(error_of(other.put(raw, timeout=60)))

        writers = [threading.Thread(target=put) for _ in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert answers == [(400, code)] * 3
        assert server.peak() - before < 450 * MIB
        assert client.put(log_group("next")).status_code == 200
