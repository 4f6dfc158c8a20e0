"""Keys of Flume's components that mean nothing here, or that something else here does the work of.

What changes nothing is left out, so that a file runs as it is. What somebody relies on, such as a key store, is not
passed over: it is a problem, which says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: Of TLS: how names begin.
_TLS = (
    *("ssl", "enablessl", "keystore", "truststore", "trust-all-certs", "sslcontextfactory."),
    *(f"{each}-{of}" for each in ("exclude", "include") for of in ("protocols", "cipher-suites")),
    *(f"{each}{of}" for each in ("exclude", "include") for of in ("protocols", "ciphersuites")),
)
#: Of Kerberos: whole names.
_KERBEROS = ("kerberos", "agent-principal", "agent-keytab", "client-principal", "client-keytab", "server-principal")
_OFF = ("", "false")
_TEXT_BUILDER = "org.apache.flume.serialization.BodyTextEventSerializer$Builder"

_CERTIFICATE = ": key stores of Java are not read; `certificate` and `key` are PEM files, for TLS"
_AUTHORITIES = ": key stores of Java are not read; `authorities` is a PEM file of those that are trusted"
_NO_KERBEROS = ": there is no Kerberos here"
#: By kind: what to say of a key, by a pattern of all of it.
_HINTS = {
    "sources": (
        (r"(?i)(ssl|enablessl|keystore.*|sslcontextfactory\..*|(ex|in)clude.?(protocols|cipher.*))", _CERTIFICATE),
        (r"(?i)truststore.*", ": key stores of Java are not read; `client_authorities` is a PEM file"),
        ("|".join(_KERBEROS), _NO_KERBEROS),
        (r"ipFilter(Rules)?", ": no rules for addresses here; `bind`, or `client_authorities`"),
        (r"zookeeperConnect", ": brokers are asked, no ZooKeeper: `kafka.bootstrap.servers`"),
        (r"migrateZookeeperOffsets", ": offsets in ZooKeeper are not read"),
        (r"useFlumeEventFormat", ": Flume's Avro events in messages are not read"),
        (r"clientHostnameHeader", ": the names of senders are not looked up; `clientIPHeader` has the address"),
        (r"handler\..*", ": a handler of one's own is not run here; the formats are json, lines, blob, batches"),
    ),
    "sinks": (
        (r"(?i)(keystore.*|truststore.*|(ex|in)clude.?(protocols|cipher.*))", _AUTHORITIES),
        ("|".join(_KERBEROS), _NO_KERBEROS),
        (r"hdfs\.(kerberos\w+|proxyUser)", ": what HDFS's own client is configured with counts"),
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
    """What to say of a key of Flume's that is not understood, behind "is not known"; None if nothing better is known.

    :param kind: ``sources``, ``sinks``, ``channels``.
    """
    return next((words for pattern, words in _HINTS.get(kind, ()) if re.fullmatch(pattern, key)), None)


def without_needless(texts: Mapping[str, str], needless: Sequence[str] = ()) -> dict[str, str]:
    """Flume's keys, without those that mean nothing here, and without those of TLS and of Kerberos where that is off.

    :param needless: the former, besides.
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
    """As :func:`without_needless`, of a component of Kafka: names of older versions count where the newer ones are not
    given, and what is said of Flume's events within messages means nothing where it is off.

    :param old: the newer name of each.
    """
    off = [] if not _is_off(texts, "useFlumeEventFormat") else ["useFlumeEventFormat"]
    kept = without_needless(texts, [*needless, *off])
    for name in [name for name in kept if name in old]:
        kept.setdefault(old[name], kept[name])
        del kept[name]
    return kept


def in_small_letters(texts: Mapping[str, str], *keys: str) -> dict[str, str]:
    """With the values of these in small letters: in capitals they mean the same."""
    return {key: value.lower() if key in keys else value for key, value in texts.items()}


def serializer_of(value: str) -> str:
    """A serializer by our word: Flume's is in capitals, or its class."""
    return "text" if value == _TEXT_BUILDER else value.lower()
