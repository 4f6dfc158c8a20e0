"""Encryption at rest with AES-256-GCM; Flume's TestFileChannelEncryption, without its key stores.

The file is long because the list of promises is.
"""

import base64
import json
import logging
import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from producer.channels import EnvironmentKeys, Event, FileChannel, FileKeys, KeyProvider
from producer.channels.file.store.encryption import OVERHEAD, SegmentCipher
from producer.channels.file.store.format import FIRST_RECORD, FRAME_SIZE, Kind
from producer.model.errors import ChannelKeyError, ConfigError
from tests.channels.file.opening import (
    CHECKPOINTS,
    DIRECTORY,
    contents,
    cut,
    end_of,
    file_stats,
    fill,
    flip,
    header,
    killed,
    open_channel,
    opened_channel,
    records,
    segments,
)
from tests.channels.helpers import bodies, drained, opened, put, take
from tests.support.sim_file import SECTOR
from tests.support.sim_fs import SimFS
from tests.support.waiting import Call

KEYS = {"2025": bytes(range(32)), "2026": bytes(range(100, 132))}


class Keys:
    """Keys by id; the last one is current."""

    def __init__(self, **keys: bytes) -> None:
        self.keys = keys
        self.asked: list[str] = []

    def current_key_id(self) -> str:
        return [*self.keys][-1]

    def get_key(self, key_id: str) -> bytes:
        self.asked.append(key_id)
        return self.keys[key_id]


def old() -> Keys:
    return Keys(k2025=KEYS["2025"])


def both() -> Keys:
    return Keys(k2025=KEYS["2025"], k2026=KEYS["2026"])


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()


def test_no_body_header_or_taken_number_is_readable_in_any_file_and_all_come_back_after_a_restart() -> None:
    """No body, header or taken number is readable in any file, and all come back after a restart."""
    disk = SimFS()
    with opened_channel(disk, encryption=old()) as channel:
        expected = [f"PLAINTEXT body {number}" for number in range(60)]
        for body in expected:
            with channel.transaction() as transaction:
                transaction.put(Event({"PLAINTEXT header": "PLAINTEXT value"}, body.encode()))
        assert file_stats(channel).rolls > 0
        assert take(channel) == expected[:1]
    for path in (*segments(disk), *CHECKPOINTS):
        assert b"PLAINTEXT" not in disk.content(path)
        assert KEYS["2025"] not in disk.content(path)
    with opened_channel(disk, encryption=old()) as channel, channel.transaction() as transaction:
        events = transaction.take(100)
        assert bodies(events) == expected[1:]
        assert {tuple(event.headers.items()) for event in events} == {(("PLAINTEXT header", "PLAINTEXT value"),)}


def test_a_key_provider_is_anything_with_the_two_methods() -> None:
    """A key provider needs the two methods and no base class."""
    assert isinstance(old(), KeyProvider)
    for wrong in ("key", b"x" * 32, {"a": b""}, object(), KEYS):
        with pytest.raises(ConfigError, match="encryption: must be a KeyProvider"):
            open_channel(encryption=wrong)


def test_each_record_has_a_nonce_of_its_own() -> None:
    """Equal events get different nonces and ciphertexts, and each segment its own key."""
    disk = SimFS()
    with opened_channel(disk, encryption=old()) as channel:
        for _ in range(100):
            put(channel, "the same")
        sealed = [record.payload for path in segments(disk) for record in records(disk, path) if record.kind == 1]
        assert len({payload[:12] for payload in sealed}) == 100
        assert len({payload[12:] for payload in sealed}) == 100
        assert {len(payload) for payload in sealed} == {OVERHEAD + 4 + 8}
        salts = {header(disk, path).salt for path in segments(disk)}
        assert len(salts) == len(segments(disk)) > 3


def test_without_a_key_provider_an_encrypted_channel_does_not_open() -> None:
    """Without a key provider an encrypted channel is refused, unchanged."""
    disk = SimFS()
    with opened_channel(disk, encryption=old()) as channel:
        put(channel, "a")
    before = {name: disk.content(f"{DIRECTORY}/{name}") for name in disk.names(DIRECTORY) if name != "LOCK"}
    with pytest.raises(
        ChannelKeyError, match=r"segment 1 is encrypted with the key 'k2025': give encryption=…"
    ) as caught:
        open_channel(disk)
    assert caught.value.key_id == "k2025"
    assert {name: disk.content(f"{DIRECTORY}/{name}") for name in before} == before
    assert disk.open_files == []
    assert contents(disk, encryption=old()) == ["a"]


def test_without_the_right_key_an_encrypted_channel_does_not_open() -> None:
    """Without the right key id the error names the missing one."""
    disk = SimFS()
    with opened_channel(disk, encryption=old()) as channel:
        put(channel, "a")
    message = r"segment 1 needs the key 'k2025', which the key provider does not have"
    with pytest.raises(ChannelKeyError, match=message):
        open_channel(disk, encryption=Keys(k2026=KEYS["2026"]))
    assert contents(disk, encryption=both()) == ["a"]


def test_with_a_wrong_key_of_the_right_name_an_encrypted_channel_does_not_open() -> None:
    """A wrong key with the right id is refused, and no event counts as damaged."""
    disk = SimFS()
    channel = open_channel(disk, encryption=old())
    expected = fill(channel, 30)
    take(channel, 3)
    disk = killed(channel, disk)
    for checkpoints in (True, False):
        if not checkpoints:
            for path in CHECKPOINTS:
                disk.unlink(path)
        with pytest.raises(ChannelKeyError, match="'k2025'") as caught:
            open_channel(disk, encryption=Keys(k2025=KEYS["2026"]))
        assert caught.value.key_id == "k2025"
        assert disk.open_files == []
    assert contents(disk, encryption=old()) == expected[3:]


def test_a_key_that_is_none_of_256_bits_is_refused_by_its_id() -> None:
    """A key that does not have 256 bits is refused by its id, without its bytes."""
    disk = SimFS()
    for wrong in (b"", b"SECRETSHORT", bytes(33), "text" * 8, None):
        with pytest.raises(ChannelKeyError, match="'bad'") as caught:
            open_channel(disk, encryption=Keys(bad=wrong))  # type: ignore[arg-type]
        assert "SECRETSHORT" not in repr(caught.value)
        assert disk.open_files == []


def test_keys_rotate_from_segment_to_segment() -> None:
    """New segments use the current key; an old key is needed until its segments are gone."""
    disk = SimFS()
    keys = old()
    with opened_channel(disk, encryption=keys) as channel:
        first = fill(channel, 30)
        keys.keys["k2026"] = KEYS["2026"]
        second = fill(channel, 30)
        used = [header(disk, path).key_id for path in segments(disk)]
        assert used == sorted(used)
        assert set(used) == {"k2025", "k2026"}
    with opened_channel(disk, encryption=both()) as channel:
        assert take(channel, 45) == (first + second)[:45]
        channel.checkpoint()
    assert {header(disk, path).key_id for path in segments(disk)} == {"k2026"}
    assert contents(disk, encryption=Keys(k2026=KEYS["2026"])) == (first + second)[45:]


def test_plain_and_encrypted_segments_lie_side_by_side() -> None:
    """Plain and encrypted segments can be mixed."""
    disk, expected = SimFS(), []
    for life, encryption in enumerate((None, old(), None, both())):
        # A provider with the keys, though new segments are plain: encrypted ones need it.
        keys = encryption if life < 2 else both()
        with opened_channel(disk, encryption=keys) as channel:
            expected += [f"{life}-{number}" for number in range(3)]
            put(channel, *expected[-3:])
    assert [header(disk, path).key_id for path in segments(disk)] == [None, "k2025", "k2026", "k2026"]
    assert contents(disk, encryption=both()) == expected


@pytest.mark.usefixtures("read_back")
@pytest.mark.parametrize("part", ["nonce", "ciphertext", "tag", "sequence number"])
def test_one_flipped_bit_costs_one_event_and_is_never_delivered(part: str) -> None:
    """A flipped bit in an encrypted record loses one event."""
    disk = SimFS()
    with opened_channel(disk, encryption=old(), segment_size=100_000) as channel:
        expected = fill(channel, 20)
        record = [record for record in records(disk, segments(disk)[0]) if record.kind == Kind.PUT][7]
        place = {"nonce": 3, "ciphertext": 40, "tag": len(record.payload) - 5, "sequence number": -12}[part]
        flip(disk, segments(disk)[0], record.offset + FRAME_SIZE + place)
        assert drained(channel) == expected[:7] + expected[8:]
        assert file_stats(channel).lost_events == 1
        assert file_stats(channel).quarantined == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_torn_end_of_an_encrypted_segment_is_cut(seed: int) -> None:
    """A torn end of an encrypted segment is cut off."""
    disk = SimFS()
    channel = open_channel(disk, encryption=old())
    put(channel, "a", "b")
    whole = end_of(disk, segments(disk)[0])
    put(channel, "never acknowledged")
    disk = killed(channel, disk)
    cut(disk, segments(disk)[0], whole + 1 + seed * 37)
    with opened_channel(disk, encryption=old()) as again:
        assert file_stats(again).torn_tails == 1
        assert drained(again) == ["a", "b"]


@pytest.mark.parametrize("fsync", ["commit", "os"])
@pytest.mark.parametrize("end", ["room", "nothing"])
def test_a_damaged_commit_that_ends_with_a_zero_is_not_taken_for_torn(fsync: str, end: str) -> None:
    """A damaged encrypted Commit that ends in a zero byte counts as damaged, not as torn."""
    disk = SimFS()
    channel = open_channel(disk, encryption=old(), fsync=fsync, segment_size=1 << 20, capacity=10_000)
    expected = fill(channel, 1)
    (path,) = segments(disk)
    while disk.content(path)[end_of(disk, path) - 1] or end_of(disk, path) % SECTOR == 1:
        expected += fill(channel, 1)
    disk = killed(channel, disk)
    last = records(disk, path)[-1]
    if end == "nothing":
        cut(disk, path, last.end)
    flip(disk, path, last.offset + FRAME_SIZE + 3)
    with opened_channel(disk, encryption=old(), capacity=10_000) as again:
        assert file_stats(again).torn_tails == 0
        assert file_stats(again).damaged_records == 1
        assert drained(again) == expected


def test_records_cannot_be_moved_or_exchanged_within_a_segment() -> None:
    """Type, sequence number and transaction of a record are authenticated."""
    cipher = SegmentCipher(KEYS["2025"], b"salt" * 4)
    sealed = cipher.seal(1, 10, 5, b"payload")
    assert cipher.open(1, 10, 5, sealed) == b"payload"
    for wrong in ((2, 10, 5), (1, 11, 5), (1, 10, 6)):
        with pytest.raises(ValueError, match="cannot be decrypted with this key"):
            cipher.open(*wrong, sealed)
    for other in (SegmentCipher(KEYS["2026"], b"salt" * 4), SegmentCipher(KEYS["2025"], b"tlas" * 4)):
        with pytest.raises(ValueError, match="cannot be decrypted with this key"):
            other.open(1, 10, 5, sealed)
    for offset in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[offset] ^= 1
        with pytest.raises(ValueError, match="cannot be decrypted with this key"):
            cipher.open(1, 10, 5, bytes(damaged))
    for size in range(len(sealed)):
        with pytest.raises(ValueError, match=r"cannot be decrypted with this key|Nonce"):
            cipher.open(1, 10, 5, sealed[:size])


def test_a_failed_sync_and_a_rollback_work_in_encrypted_segments() -> None:
    """Records rewritten after a failed sync are encrypted for the new segment."""
    disk = SimFS()
    with opened_channel(disk, encryption=old()) as channel:
        put(channel, "a")
        disk.fail("sync")
        put(channel, "b")
        assert file_stats(channel).poisoned == 1
        transaction = opened(channel)
        transaction.put(Event({}, b"never"))
        disk.fail("sync", times=None)
        with pytest.raises(OSError, match="could not be synced to the disk"):
            transaction.commit()
        disk.heal()
        put(channel, "c")
        assert contents(disk.copy(), encryption=old()) == ["a", "b", "c"]
        assert drained(channel) == ["a", "b", "c"]


@pytest.mark.parametrize("direction", ["put", "take"])
def test_twenty_threads_use_an_encrypted_channel(direction: str) -> None:
    """Twenty threads put or take each event once in an encrypted channel."""
    disk = SimFS()
    with opened_channel(disk, encryption=both(), segment_size=20_000) as channel:
        if direction == "take":
            expected = fill(channel, 400, each=20)
            calls = [Call(lambda: [body for _ in range(4) for body in take(channel, 5)]) for _ in range(20)]
            taken = [body for call in calls for body in call.result()]
        else:
            expected = [f"{name:02}-{number:02}" for name in range(20) for number in range(20)]
            calls = [Call(lambda name=name: put(channel, *expected[name * 20 : name * 20 + 20])) for name in range(20)]
            for call in calls:
                call.result()
            taken = drained(channel)
        assert sorted(taken) == sorted(expected)
        assert drained(channel) == []


# Key providers


def key_file(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_keys_from_a_file(tmp_path: Path) -> None:
    """A key file gives its keys and the current one."""
    keys = {f"key-{number}": os.urandom(32) for number in range(10)}
    content = {"current": "key-3", "keys": {name: encoded(key) for name, key in keys.items()}}
    provider = FileKeys(key_file(tmp_path / "keys.json", content))
    assert isinstance(provider, KeyProvider)
    assert provider.current_key_id() == "key-3"
    for name, key in keys.items():
        assert provider.get_key(name) == key
    with pytest.raises(KeyError):
        provider.get_key("other")
    disk = SimFS()
    with opened_channel(disk, encryption=provider) as channel:
        put(channel, "a")
    assert header(disk, segments(disk)[0]).key_id == "key-3"
    assert contents(disk, encryption=pickle.loads(pickle.dumps(provider))) == ["a"]


SECRET = encoded(b"S" * 32)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (None, "the key file cannot be read (FileNotFoundError)"),
        ("", "the key file cannot be read (JSONDecodeError)"),
        (f'{{"keys": {{"a": "{SECRET}"', "the key file cannot be read (JSONDecodeError)"),
        ([SECRET], 'the key file must hold {"current": …, "keys": {…}}'),
        ({"keys": [SECRET]}, 'the key file must hold {"current": …, "keys": {…}}'),
        ({"keys": {"a": SECRET}}, "names a current key that it does not hold"),
        ({"current": "b", "keys": {"a": SECRET}}, "names a current key that it does not hold"),
        ({"current": "a", "keys": {"a": SECRET + "!"}}, "key 'a' of the key file"),
        ({"current": "a", "keys": {"a": encoded(b"S" * 31)}}, "must be the base64 of 32 bytes, got '31 bytes'"),
        ({"current": "a", "keys": {"a": 5}}, "must be the base64 of 32 bytes"),
        ({"current": "", "keys": {"": SECRET}}, "must have 1 to 64 bytes"),
        ({"current": "x" * 65, "keys": {"x" * 65: SECRET}}, "must have 1 to 64 bytes"),
    ],
)
def test_a_bad_key_file_is_refused_without_telling_keys(tmp_path: Path, content: Any, rule: str) -> None:
    """An invalid key file is refused with path and rule, without any key."""
    path = tmp_path / "keys.json"
    if content is not None:
        key_file(path, content)
    with pytest.raises(ConfigError) as caught:
        FileKeys(path)
    assert rule in str(caught.value)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET[:20] not in f"{error} {error!r} {error.__dict__}"
        error = error.__cause__ or error.__context__ if not error.__suppress_context__ else error.__cause__


def environment(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_keys_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables give the keys and the current one."""
    environment(
        monkeypatch,
        {
            "PRODUCER_CHANNEL_CURRENT": "2026",
            "PRODUCER_CHANNEL_KEY_2025": encoded(KEYS["2025"]),
            "PRODUCER_CHANNEL_KEY_2026": encoded(KEYS["2026"]),
            "OTHER_CURRENT": "x",
            "OTHER_KEY_x": encoded(b"x" * 32),
        },
    )
    provider = EnvironmentKeys()
    assert (provider.current_key_id(), provider.get_key("2025"), provider.get_key("2026")) == (
        "2026",
        KEYS["2025"],
        KEYS["2026"],
    )
    other = EnvironmentKeys("OTHER_")
    assert (other.current_key_id(), other.get_key("x")) == ("x", b"x" * 32)
    assert pickle.loads(pickle.dumps(other)).get_key("x") == b"x" * 32


@pytest.mark.parametrize(
    ("variables", "rule"),
    [
        ({}, "the environment variable P_CURRENT is missing: set it to the id of a key"),
        ({"P_CURRENT": "a"}, "names a current key that it does not hold"),
        ({"P_CURRENT": "a", "P_KEY_a": "no base64"}, "key 'a' of the environment (P_*) must be the base64 of 32 bytes"),
        ({"P_CURRENT": "a", "P_KEY_a": encoded(b"S" * 16)}, "got '16 bytes'"),
    ],
)
def test_a_bad_environment_is_refused(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rule: str) -> None:
    """Invalid environment variables are refused by name."""
    environment(monkeypatch, variables)
    with pytest.raises(ConfigError) as caught:
        EnvironmentKeys("P_")
    assert rule in str(caught.value)


def test_no_secret_is_in_any_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No key is in a repr, a pickle, the statistics or the log."""
    provider = FileKeys(key_file(tmp_path / "keys.json", {"current": "a", "keys": {"a": SECRET}}))
    secrets = (SECRET, "S" * 32, repr(b"S" * 8)[2:-1])
    caplog.set_level(logging.DEBUG)
    with opened_channel(encryption=provider) as channel:
        put(channel, "a")
        channel.checkpoint()
        texts = [repr(provider), str(provider), repr(channel), repr(channel.stats()), caplog.text]
        texts.append(repr(pickle.dumps(provider)))
        texts.append(repr(channel._segments.all()))
    for text in texts:
        assert not any(secret in text for secret in secrets), text
    assert "keys: a" in repr(provider)


def test_without_the_package_encryption_is_refused_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, encryption is refused with the install command."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with opened_channel() as channel:
        put(channel, "a")
    with pytest.raises(ConfigError, match=r"pip install .*\[encryption\]'"):
        open_channel(encryption=old())


def test_on_the_real_disk(tmp_path: Path) -> None:
    """Encryption works with real files across a restart."""
    options: dict[str, Any] = {"checkpoint_interval": None, "minimum_free_space": 0, "reserve": 0, "keep_alive": 0}
    with FileChannel(tmp_path / "c", encryption=both(), **options) as channel:
        put(channel, "PLAINTEXT")
        (path,) = (tmp_path / "c").glob("log-*")
        assert b"PLAINTEXT" not in path.read_bytes()
        assert path.stat().st_size > FIRST_RECORD
    with FileChannel(tmp_path / "c", encryption=both(), **options) as channel:
        assert drained(channel) == ["PLAINTEXT"]
