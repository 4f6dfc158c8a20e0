"""Follows log files as they grow and are rotated. Source: Flume's ``TaildirSource``.

::

    directories ──scan──► which files there are ──identity──► readers ──blocks of lines──► outlet
                                                    ▲
             positions, with the channels ──────────┴── notes, in the source's own directory

What is read belongs to a **name** (:mod:`..reading.identity`), which stays with a file's bytes, not with its path: a
file that was renamed goes on where it was. One that was cut short, or holds other bytes than those that were read, gets
a new name and begins at byte 0; if the old bytes lie beside it in a copy, as ``copytruncate`` leaves them, the old name
goes on in the copy; or in a compressed one (:mod:`.compressed`). How far each name was read lies with the channels
(:class:`~producer.agent.events.batch.Position`); what only helps to know a file again lies in the source's own notes,
and may
be lost without harm to what follows.

A name belongs to bytes that were seen: it is made of those that are about to be put, and nothing else is put under it.
So what a copy is follows from what it holds, also after a death (:mod:`.copies`).

What no reader can see: a file that was cut, and written again beyond the old position with the bytes that were read, as
far as these are compared (:mod:`producer.runtime.file_identity`).
"""

from .source import TaildirSource

__all__ = ["TaildirSource"]
