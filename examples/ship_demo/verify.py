"""Compare files with a logstore: every line must be there once, unchanged.

Each side is summarized for each file by the number of lines and a digest: the sum, modulo 2**256, of the SHA-256 of
each line together with its offset. The sum does not depend on the order. A missing, changed, moved or repeated line
changes it. The files are read by other code than the job's: whole, and by the simplest reading of the rules.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from producer.ship.files.log_file import LogFile
from producer.ship.lines.record import content_bytes
from producer.ship.report import counted
from producer.text.printable import readable

_WHOLE: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "bz2": bz2.decompress, "xz": lzma.decompress}
_MODULUS = 1 << 256


@dataclass(slots=True)
class Digest:
    """Summary of the lines of one file, independent of their order.

    :ivar lines: number of lines.
    :ivar total: the sum of their SHA-256, modulo 2**256.
    """

    lines: int = 0
    total: int = 0

    def add(self, offset: int, data: bytes) -> None:
        hashed = hashlib.sha256(b"%d:" % offset + data).digest()
        self.lines += 1
        self.total = (self.total + int.from_bytes(hashed)) % _MODULUS


@dataclass(slots=True)
class _Held:
    """The lines of one file in the logstore."""

    digest: Digest = field(default_factory=Digest)
    pieces: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)

    def finished(self) -> Digest:
        """Return the digest. The pieces of a long line are joined in order; an extra piece changes the line."""
        for offset, pieces in self.pieces.items():
            self.digest.add(offset, b"".join(data for _, data in sorted(pieces)))
        return self.digest


def digests_of_files(files: Iterable[LogFile]) -> dict[str, Digest]:
    """Read each file up to the size it had when it was found, and digest its lines."""
    return {readable(file.path): _digest_of_file(file) for file in files}


def digests_of_logs(logs: Iterable[dict[str, str]]) -> dict[str, Digest]:
    """Digest the records of a logstore by their file, which their tags name."""
    held: dict[str, _Held] = {}
    for fields in logs:
        of_file = held.setdefault(fields["__tag__:__path__"], _Held())
        offset, part = int(fields["__file_offset__"]), int(fields.get("line_part", 0))
        if part:
            of_file.pieces.setdefault(offset, []).append((part, content_bytes(fields)))
        else:
            of_file.digest.add(offset, content_bytes(fields))
    return {path: of_file.finished() for path, of_file in held.items()}


def differences(read: dict[str, Digest], held: dict[str, Digest]) -> list[str]:
    """Return the differences between files and logstore, one line per file; empty if there are none."""
    found = []
    for path in sorted(read.keys() | held.keys()):
        here, there = read.get(path, Digest()), held.get(path, Digest())
        if here.lines != there.lines:
            found.append(f"{path}: {counted(here.lines, 'line')} in the file, {there.lines:,} in the logstore")
        elif here.total != there.total:
            found.append(f"{path}: {counted(here.lines, 'line')} on both sides, but not the same")
    return found


def _digest_of_file(file: LogFile) -> Digest:
    with open(file.path, "rb") as opened:  # noqa: PTH123  # a path of the file's own bytes
        content = opened.read(file.size)
    if file.compression is not None:
        content = _WHOLE[file.compression](content)
    digest, offset = Digest(), 0
    *ended, last = content.split(b"\n")
    for line in ended:
        digest.add(offset, line[:-1] if line.endswith(b"\r") else line)
        offset += len(line) + 1
    if last:
        digest.add(offset, last)
    return digest
