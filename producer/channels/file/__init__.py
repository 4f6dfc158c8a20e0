"""The file channel: a write-ahead log of segments, a queue of pointers into it, and checkpoints of that queue.

On disk
=======

::

    DIRECTORY/
      LOCK                  held by flock(2) as long as a channel is open; tells who holds it
      checkpoint            the queue at some moment, and where in the log to go on from there
      checkpoint.backup     the same once more
      log-0000000007        segments; with ``data_directories`` these lie there, in turn
      notes.db              what idempotent streams were about to send: SQLite, see :mod:`.store.notes`
      reserve               space that is given up when the disk is full, so that takes can still be written
      quarantine/           what is kept aside for people: see :mod:`.recovery.quarantine`; also in each data directory

All numbers are little-endian.

**A segment** begins with a header, twice, at offsets 0 and 512 (two sectors, so that one torn or damaged sector leaves
the other); records follow behind the second one. A header of version 2 is 140 bytes::

    8 magic b"LHSEGMNT" | 2 version (2) | 1 cipher (0 none, 1 AES-256-GCM) | 1 length of the key id | 8 segment number
    8 first sequence number | 16 salt, random | 8 time of creation, float, seconds since the epoch
    8 the transaction that its writer had gone on past | 64 key id, UTF-8 | 4 CRC-32 of the 124 bytes before
    8 pointer: what stands from there on, up to this segment, does not count; 0 if all does | 4 CRC-32 of all before

Version 1, which is read, ends behind the first CRC: a newer version is recognised by any package. A pointer is a
segment number << 32 | an offset.

A segment is written under its name with ``.new`` behind it, synced, renamed, and the directory synced: it appears with
its header, and with whatever else it has to begin with, or not at all.

**A record** is a frame::

    4 marker b"\\xa7LH\\x1e" | 4 CRC-32 | 4 length of the payload | 1 type | 3 zero | 4 records of the same transaction
    that follow | 8 sequence number | 8 transaction id | payload

The CRC covers everything after itself, and begins with the CRC of the segment's salt: bytes that were copied from
elsewhere, an event that contains a piece of a log for instance, never pass for a record.

====  ========  ==================================================================================================
type  name      payload
====  ========  ==================================================================================================
1     Put       one event: 4 length of the headers, the headers, the body. A header is 2 length of the name, 4 length
                of the value (all ones: the value is None), name and value as UTF-8. The sequence number is the
                event's own.
2     Take      the sequence numbers of the events taken, 8 bytes each
3     Commit    4 number of records before it in this transaction, 8 the newest transaction that was known to be on
                the disk, 8 time as a float. Where commits do not wait for the disk the top bit of the second is set
4     Rollback  8 and 8: first and last sequence number that the transaction, named by its id, had used; it does not
                count (of version 1, where headers have no pointer)
5     Gap       nothing: what ``producer channel repair`` has put where damaged bytes were, which are in ``quarantine/``
6     Live      8 a transaction, 8 a sequence number, then 8 and 8 for each range: of the events below that number those
                in the ranges, first and last, are in the channel, as far as transactions up to that one tell
====  ========  ==================================================================================================

Records that are not Puts carry the sequence number of the newest Put. In an encrypted segment the payload is
12 bytes nonce, then the AES-GCM ciphertext with its tag; type, sequence number and transaction id are authenticated
with it, and the key is derived from the named one and the segment's salt.

A transaction's records are written in one piece when it commits: Puts and a Commit, a Take and a Commit, or, of the
channel's own, a Live and a Commit. What was put but not committed is never in the log.

**Room.** Where commits wait for the disk, up to 1 MiB of zeros is laid out behind small ones, and those that follow are
written over them: a sync is the writing of their bytes then, without that of a new size and place. The room is given up
when a segment is full, and when a channel is closed; where a process died, by the next one. So zeros at the end of a
segment are nothing, unless the next segment tells by its first sequence number that events stood there.

**A sync that fails** gives a segment up: the system may have dropped what it could not write, and says so once. Nothing
is appended to that segment any more. The next one begins with what is not known to be on the disk, and its pointer says
that what stands at the end of the old one does not count, whether it has reached the disk, in part or whole, or not.
Likewise where a part of a transaction was written and the rest was not, though it is cut off again: a crash may leave
sectors of it, and among those of something else they would pass for damage. So a disk that takes only a part at once
gets the whole in a new segment, which appears when all of it is on the disk.

*Example.* Two events ``a`` and ``b`` without headers are put in one transaction, then ``a`` is taken (``+n`` is the
count of records that follow in the transaction)::

    offset 652   Put    seq 1  tx 1  +2  00 00 00 00 61
    offset 693   Put    seq 2  tx 1  +1  00 00 00 00 62
    offset 734   Commit seq 2  tx 1  +0  2 records, on disk: tx 0, time
    offset 790   Take   seq 2  tx 2  +1  01 00 00 00 00 00 00 00
    offset 834   Commit seq 2  tx 2  +0  1 record, on disk: tx 1, time

**Reading a log.** A record that does not check out is skipped to the next marker behind which one does, with a sequence
number not below the last. A transaction is *torn* if a crash may have left it so, which 512-byte sectors of zeros show
that were never written, or a file that ends in its middle, and if nothing says that it holds. It is forgotten as a
whole: it was never acknowledged. At the end of the log it is cut off; before others that are whole, which are kept, the
next segment begins with a Live. That it holds is said by the Commits, which name the newest transaction that was on the
disk before them, and by the headers of later segments, whose writers had gone on past it. Where commits do not wait for
the disk, a transaction holds once it is written: a Commit then speaks for its own and for all before, and any record
for those before its own. What is damaged otherwise loses only the damaged records: a transaction whose Commit alone is
unreadable counts as committed, since its records are only ever written in order to commit it. What is lost is counted
as far as the sequence numbers around it tell, and a Live in the next segment keeps it from being counted again. The
same event may stand in two segments of version 1, if a sync of the first one failed: the later one counts.

What is behind the newest transaction that a Commit, or a header, knows to be on the disk is written once more when a
log is opened, over itself, and synced: the process before may have died when a sync had failed, and the system takes
for written then what is in its cache.

**A checkpoint** is written beside its place with ``.new`` behind its name, synced, renamed, and the directory synced.
What a failed write leaves is removed at once, or by the next opening::

    8 magic b"LHCHECKP" | 2 version (1) | 6 zero | 8 generation | 8 position: segment | 8 position: offset
    8 next sequence number | 8 next transaction id | 8 number of segments | 8 number of events
    for each segment: 8 number, 16 salt
    for all events: 8 sequence number each; then 8 pointer each (segment << 32 | offset); then 4 length each; then
    8 time of the put each
    4 CRC-32 of everything before

It holds every event before its position that nobody's committed transaction has taken; all that it says is on the disk
before it is. Opening loads it and reads the log from its position on; without one that is whole and fits the segments,
the whole log is read. A segment is deleted when no event in it is left, no earlier segment is there of whose end its
pointer speaks, and both copies of a checkpoint with a later position are on the disk. Its Takes, and what it says is
void, may concern events of segments that stay: so a Live is written before, and is on the disk, and no event comes
again even if both copies are lost. If a segment that a checkpoint needs is missing, the channel does not open: a
directory is not mounted, or was not named. It lists all segments that existed when it was written, also those that were
deleted then: one before its position that it does not list was missing, and is kept aside. No two segments ever have
the same number.
"""
