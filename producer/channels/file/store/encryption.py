"""Encryption at rest: AES-256-GCM with a nonce for each record, and keys by id, so that they can be rotated.

New segments use the provider's current key; older ones name theirs. Plain and encrypted segments can be mixed. Each
segment has its own key, derived (HKDF-SHA-256, RFC 5869) from the named key and the segment's salt. So random nonces
stay far below the limit for one key in NIST SP 800-38D, section 8.3.

It needs the package ``cryptography`` (extra ``encryption``).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ....model.errors import ConfigError
from ....text.extras import how_to_install
from ....text.plural import counted

_NONCE = 12
_TAG = 16
#: Size of a key, bytes.
KEY_SIZE = 32
#: Bytes that encryption adds to a payload.
OVERHEAD = _NONCE + _TAG
_BOUND = struct.Struct("<BQQ")
MAX_KEY_ID = 64


@runtime_checkable
class KeyProvider(Protocol):
    """Source of encryption keys, for ``FileChannel(encryption=…)``.

    Example:

        >>> class VaultKeys:
        ...     def current_key_id(self):
        ...         return "2026-11"
        ...     def get_key(self, key_id):
        ...         return {"2026-11": bytes(32)}[key_id]
        >>> isinstance(VaultKeys(), KeyProvider)
        True
    """

    def current_key_id(self) -> str:
        """Return the id of the key for new segments, at most 64 bytes of UTF-8."""

    def get_key(self, key_id: str) -> bytes:
        """Return the key of this id, 32 bytes.

        :param key_id: the id from a segment's header.
        :raises KeyError: there is none.
        """


class _Keys:
    """Keys that are all loaded at once."""

    def __init__(self, keys: Mapping[str, str], current: str, where: str) -> None:
        self._keys = {key_id: _decode_key(key_id, text, where) for key_id, text in keys.items()}
        self._current = current
        self._where = where
        if current not in self._keys:
            raise ConfigError("encryption", f"{where} names a current key that it does not hold", current)

    def current_key_id(self) -> str:
        """Return the id of the key for new segments."""
        return self._current

    def get_key(self, key_id: str) -> bytes:
        """Return the key of this id, 32 bytes.

        :raises KeyError: there is none.
        """
        return self._keys[key_id]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._where}, keys: {', '.join(sorted(self._keys))}>"


class FileKeys(_Keys):
    """Keys in a JSON file: ``{"current": "2026-11", "keys": {"2026-11": "<base64 of 32 bytes>", …}}``.

    Example:

        >>> import base64, secrets
        >>> key = base64.b64encode(secrets.token_bytes(32)).decode()
        >>> import json, pathlib
        >>> content = json.dumps({"current": "2026-11", "keys": {"2026-11": key}})
        >>> _ = pathlib.Path("keys.json").write_text(content)
        >>> FileKeys("keys.json").current_key_id()
        '2026-11'

    :param path: the file; only its owner should be able to read it.
    :raises ConfigError: the file is missing or invalid.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            # A JSONDecodeError would carry the whole file, keys and all.
            rule = f"the key file cannot be read ({type(error).__name__})"
            raise ConfigError("encryption", rule, self._path) from None
        if not isinstance(content, dict) or not isinstance(content.get("keys"), dict):
            raise ConfigError("encryption", 'the key file must hold {"current": …, "keys": {…}}', self._path)
        super().__init__(content["keys"], str(content.get("current")), f"the key file {self._path}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._path,)


class EnvironmentKeys(_Keys):
    """Keys in environment variables: ``<prefix>CURRENT`` is an id, ``<prefix>KEY_<id>`` the base64 of 32 bytes.

    Example:

        >>> import base64, secrets
        >>> key = base64.b64encode(secrets.token_bytes(32)).decode()
        >>> import os
        >>> os.environ |= {"PRODUCER_CHANNEL_CURRENT": "2026", "PRODUCER_CHANNEL_KEY_2026": key}
        >>> EnvironmentKeys().current_key_id()
        '2026'

    :param prefix: the prefix of the variables' names.
    :raises ConfigError: a variable is missing, or is not a key.
    """

    def __init__(self, prefix: str = "PRODUCER_CHANNEL_") -> None:
        self._prefix = prefix
        start = f"{prefix}KEY_"
        keys = {name.removeprefix(start): value for name, value in os.environ.items() if name.startswith(start)}
        current = os.environ.get(f"{prefix}CURRENT")
        if current is None:
            name = "encryption"  # also passed as the value, since there is none
            raise ConfigError(
                name, f"the environment variable {prefix}CURRENT is missing: set it to the id of a key", name
            )
        super().__init__(keys, current, f"the environment ({prefix}*)")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._prefix,)


def _decode_key(key_id: str, text: object, where: str) -> bytes:
    rule = f"key {key_id!r} of {where} must be the base64 of {KEY_SIZE} bytes"
    try:
        key = base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(name := "encryption", f"{rule}, and is not base64", name) from None
    if len(key) != KEY_SIZE:
        raise ConfigError("encryption", rule, counted(len(key), "byte"))
    if not 1 <= len(key_id.encode()) <= MAX_KEY_ID:
        raise ConfigError("encryption", f"the id of a key in {where} must have 1 to {MAX_KEY_ID} bytes", key_id)
    return key


class SegmentCipher:
    """Encrypts and decrypts the payloads of one segment.

    :param key: the named key, 32 bytes.
    :param salt: the segment's salt.
    """

    def __init__(self, key: bytes, salt: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        derived = HKDF(SHA256(), KEY_SIZE, salt, b"producer file channel segment").derive(key)
        self._gcm = AESGCM(derived)

    def seal(self, kind: int, sequence: int, transaction: int, payload: bytes) -> bytes:
        """Encrypt a payload; return nonce, ciphertext and tag."""
        nonce = os.urandom(_NONCE)
        return nonce + self._gcm.encrypt(nonce, payload, _BOUND.pack(kind, sequence, transaction))

    def open(self, kind: int, sequence: int, transaction: int, sealed: bytes) -> bytes:
        """Decrypt a payload.

        :raises ValueError: it was changed, or encrypted with another key.
        """
        from cryptography.exceptions import InvalidTag

        try:
            return self._gcm.decrypt(sealed[:_NONCE], sealed[_NONCE:], _BOUND.pack(kind, sequence, transaction))
        except InvalidTag:
            raise ValueError("the record cannot be decrypted with this key") from None


def check_available() -> None:
    """Check that ``cryptography`` is installed.

    :raises ConfigError: it is not installed.
    """
    try:
        import cryptography  # noqa: F401  # only to see whether it is installed
    except ImportError:
        rule = f"needs the package cryptography: {how_to_install('encryption')}"
        raise ConfigError(name := "encryption", rule, name) from None
