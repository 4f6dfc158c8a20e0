"""Translate or drop the keys of Flume's components that have no counterpart here.

Keys without any effect are dropped, so that a file runs as it is. A key that a user relies on, such as a key store, is
a problem instead. The message says what to write in its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: Prefixes of the keys of TLS.
_TLS = (
    *("ssl", "enablessl", "keystore", "truststore", "trust-all-certs", "sslcontextfactory."),
    *(f"{each}-{of}" for each in ("exclude", "include") for of in ("protocols", "cipher-suites")),
    *(f"{each}{of}" for each in ("exclude", "include") for of in ("protocols", "ciphersuites")),
)
#: The keys of Kerberos.
_KERBEROS = ("kerberos", "agent-principal", "agent-keytab", "client-principal", "client-keytab", "server-principal")
_OFF = ("", "false")
_TEXT_BUILDER = "org.apache.flume.serialization.BodyTextEventSerializer$Builder"

_CERTIFICATE = ": Java key stores are not read; for TLS set `certificate` and `key`, which are PEM files"
_AUTHORITIES = ": Java key stores are not read; set `authorities`, a PEM file of trusted CAs"
_NO_KERBEROS = ": Kerberos is not supported"
#: Hints by kind: a pattern that matches whole keys, and the hint to show.
_HINTS = {
    "sources": (
        (r"(?i)(ssl|enablessl|keystore.*|sslcontextfactory\..*|(ex|in)clude.?(protocols|cipher.*))", _CERTIFICATE),
        (r"(?i)truststore.*", ": Java key stores are not read; set `client_authorities`, a PEM file"),
        ("|".join(_KERBEROS), _NO_KERBEROS),
        (r"ipFilter(Rules)?", ": address rules are not supported; use `bind` or `client_authorities`"),
        (r"zookeeperConnect", ": ZooKeeper is not used; set `kafka.bootstrap.servers`"),
        (r"migrateZookeeperOffsets", ": offsets in ZooKeeper are not read"),
        (r"useFlumeEventFormat", ": Flume's Avro events in messages are not read"),
        (r"clientHostnameHeader", ": senders' host names are not looked up; `clientIPHeader` has the address"),
        (r"handler\..*", ": custom handlers are not supported; the formats are json, lines, blob, batches"),
    ),
    "sinks": (
        (r"(?i)(keystore.*|truststore.*|(ex|in)clude.?(protocols|cipher.*))", _AUTHORITIES),
        ("|".join(_KERBEROS), _NO_KERBEROS),
        (r"hdfs\.(kerberos\w+|proxyUser)", ": the configuration of the HDFS client counts"),
        (r"useFlumeEventFormat", ": Flume's Avro events in messages are not written"),
    ),
    "channels": (
        (
            r"encryption\..*",
            ": Flume's key stores are not read; `key_file` encrypts a file channel (`producer agent explain file`)",
        ),
    ),
}


def hint_of(kind: str, key: str) -> str | None:
    """Return the hint for an unknown key of Flume's, to follow "is not known"; None if there is none.

    :param kind: ``sources``, ``sinks`` or ``channels``.
    """
    return next((words for pattern, words in _HINTS.get(kind, ()) if re.fullmatch(pattern, key)), None)


def without_needless(texts: Mapping[str, str], needless: Sequence[str] = ()) -> dict[str, str]:
    """Drop the keys without effect, and those of TLS and Kerberos where these are off.

    :param needless: further keys without effect.
    """
    left = ["kerberos", *needless] if _is_off(texts, "kerberos") else list(needless)
    kept = {name: value for name, value in texts.items() if name not in left}
    if _is_off(texts, "kerberos"):
        kept = {name: value for name, value in kept.items() if name not in _KERBEROS}
    if not (_is_off(texts, "ssl") and _is_off(texts, "enableSSL")):
        return kept
    return {name: value for name, value in kept.items() if not name.lower().startswith(_TLS)}


def _is_off(texts: Mapping[str, str], name: str) -> bool:
    return texts.get(name, "").strip().lower() in _OFF


def renamed(texts: Mapping[str, str], old: Mapping[str, str], needless: Sequence[str] = ()) -> dict[str, str]:
    """Rename the old keys of a Kafka component, and drop those without effect.

    An old key counts only if the newer one is not given. ``useFlumeEventFormat`` has no effect where it is off.

    :param old: the newer name of each old key.
    :param needless: further keys without effect.
    """
    off = [] if not _is_off(texts, "useFlumeEventFormat") else ["useFlumeEventFormat"]
    kept = without_needless(texts, [*needless, *off])
    for name in [name for name in kept if name in old]:
        kept.setdefault(old[name], kept[name])
        del kept[name]
    return kept


def in_small_letters(texts: Mapping[str, str], *keys: str) -> dict[str, str]:
    """Lower the case of the values of some keys, which Flume also takes in capitals."""
    return {key: value.lower() if key in keys else value for key, value in texts.items()}


def serializer_of(value: str) -> str:
    """Return our name of a serializer that Flume writes in capitals, or as a class."""
    return "text" if value == _TEXT_BUILDER else value.lower()
