"""Follow log files as they grow and are rotated. Modelled on Flume's ``TaildirSource``.

::

    directories ──scan──► files found ──identity──► readers ──blocks of lines──► outlet
                                                       ▲
             positions, with the channels ─────────────┴── notes, in the source's own directory

A position belongs to a **name** (:mod:`..reading.identity`). A name stays with a file's bytes, not with its path, so
reading of a renamed file continues at its position. A file that was truncated, or that holds other bytes than those
that were read, gets a new name and begins at byte 0. If a copy beside it holds the old bytes, as ``copytruncate``
leaves them, the old name continues in the copy. The copy may be compressed (:mod:`.compressed`).

The position of each name is stored with the channels (:class:`~producer.agent.events.batch.Position`). The source's own
notes only help to recognize a file again; losing them loses no position.

A name is made of the first bytes that are about to be put, and only those bytes are put under it. So the source can
tell by its content whether a file is a copy, also after a crash (:mod:`.copies`).

One case is not detected: a file that was truncated and then rewritten beyond the old position with the same bytes at
the compared places (:mod:`producer.runtime.file_identity`).
"""

from .source import TaildirSource

__all__ = ["TaildirSource"]
