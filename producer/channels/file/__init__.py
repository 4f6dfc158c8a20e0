"""The file channel: a write-ahead log of segments, a queue of pointers into it, and checkpoints of that queue.

On disk
=======

::

    DIRECTORY/
      LOCK                  locked by flock(2) while a channel is open; names its owner
      checkpoint            a snapshot of the queue, and the log position to replay from
      checkpoint.backup     a second copy of it
      log-0000000007        segments; with ``data_directories``, spread over those instead
      notes.db              the send journal of idempotent streams, in SQLite: see :mod:`.store.notes`
      reserve               space released when the disk is full, so that takes can still be written
      quarantine/           damaged files: see :mod:`.recovery.quarantine`; also in each data directory

All numbers are little-endian.

**A segment** begins with a header, twice, at offsets 0 and 512 (two sectors, so that one torn or damaged sector leaves
the other); records follow behind the second one. A header of version 2 is 140 bytes::

    8 magic b"LHSEGMNT" | 2 version (2) | 1 cipher (0 none, 1 AES-256-GCM) | 1 length of the key id | 8 segment number
    8 first sequence number | 16 salt, random | 8 time of creation, float, seconds since the epoch
    8 the newest transaction when the segment was created | 64 key id, UTF-8 | 4 CRC-32 of the 124 bytes before
    8 pointer: records from there up to this segment are void; 0 for none | 4 CRC-32 of all before

Version 1 ends after the first CRC and can still be read. Every version of the package recognises newer versions. A
pointer is a segment number << 32 | an offset.

A segment is written under its name plus ``.new``, synced, renamed, and the directory synced. So it appears with its
header and its first records, or not at all.

**A record** is a frame::

    4 marker b"\\xa7LH\\x1e" | 4 CRC-32 | 4 length of the payload | 1 type | 3 zero | 4 records of the same transaction
    that follow | 8 sequence number | 8 transaction id | payload

The CRC covers everything after itself and starts from the CRC of the segment's salt. So bytes copied from elsewhere,
such as an event that contains a piece of a log, never pass for a record.

====  ========  ==================================================================================================
type  name      payload
====  ========  ==================================================================================================
1     Put       one event: 4 length of the headers, the headers, the body. A header is 2 length of the name, 4 length
                of the value (all ones: the value is None), name and value as UTF-8. The sequence number is the
                event's own.
2     Take      the sequence numbers of the events taken, 8 bytes each
3     Commit    4 number of records before it in this transaction, 8 the newest transaction known to be on the
                disk, 8 time as a float. The top bit of the second is set if commits do not wait for the disk
4     Rollback  8 and 8: first and last sequence number of the transaction with this id, which is void (version 1 only,
                where headers have no pointer)
5     Gap       nothing: ``producer channel repair`` writes it over damaged bytes, which it copies to ``quarantine/``
6     Live      8 a transaction, 8 a sequence number, then 8 and 8 for each range, first and last: of the events below
                that number only these are in the channel, as of that transaction
====  ========  ==================================================================================================

Records that are not Puts carry the sequence number of the newest Put. In an encrypted segment the payload is
12 bytes nonce, then the AES-GCM ciphertext with its tag; type, sequence number and transaction id are authenticated
with it, and the key is derived from the named one and the segment's salt.

A transaction's records are written in one piece when it commits: Puts and a Commit, or a Take and a Commit. The channel
itself writes a Live and a Commit. Uncommitted puts are never in the log.

**Preallocation.** Where commits wait for the disk, up to 1 MiB of zeros is preallocated after small commits, and later
commits overwrite them. A sync then writes only their bytes, and no new file size or extent. The space is released when
a segment is full and when the channel closes; after a crash the next opening releases it. So zeros at the end of a
segment mean nothing, unless the next segment's first sequence number shows that events are missing.

**A failed sync** ends a segment: the kernel may have dropped the pages that it could not write, and reports that only
once. Nothing more is appended to that segment. The next one begins with all records not known to be on the disk. Its
pointer voids the end of the old one, whether or not that end has reached the disk. A partly written transaction is
handled the same way, although it is cut off again: a crash may leave sectors of it, which would later pass for damage.
So if the disk accepts only a part of a write, the whole transaction goes to a new segment, which appears once it is
synced.

*Example.* Two events ``a`` and ``b`` without headers are put in one transaction, then ``a`` is taken (``+n`` is the
count of records that follow in the transaction)::

    offset 652   Put    seq 1  tx 1  +2  00 00 00 00 61
    offset 693   Put    seq 2  tx 1  +1  00 00 00 00 62
    offset 734   Commit seq 2  tx 1  +0  2 records, on disk: tx 0, time
    offset 790   Take   seq 2  tx 2  +1  01 00 00 00 00 00 00 00
    offset 834   Commit seq 2  tx 2  +0  1 record, on disk: tx 1, time

**Reading a log.** An invalid record is skipped up to the next marker that starts a valid one, whose sequence number
must not be below the last. A transaction is *torn* if a crash may have left it incomplete and nothing confirms it.
Signs of a crash are 512-byte sectors of zeros that were never written, and a file that ends inside the transaction. A
torn transaction is dropped whole: it was never acknowledged. At the end of the log it is cut off. If valid transactions
follow it, these are kept, and the next segment begins with a Live. A transaction is confirmed by a later Commit, which
names the newest transaction on the disk before it, and by the header of a later segment, which names the newest
transaction at its creation. Where commits do not wait for the disk, a transaction counts once it is written. A Commit
then confirms its own transaction and all earlier ones; any other record confirms the earlier ones. Any other damage
loses only the damaged records. A transaction with an unreadable Commit counts as committed, since records are written
only by a commit. Lost events are counted from the sequence numbers around them, and a Live in the next segment prevents
a second count. In version 1, an event can be in two segments if a sync of the first one failed: the later one counts.

On opening, all records after the newest confirmed transaction are rewritten in place and synced. The previous process
may have died after a failed sync, and the kernel then treats its cached pages as written.

**A checkpoint** is written under its name plus ``.new``, synced, renamed, and the directory synced. A partial file is
removed when the write fails, or by the next opening::

    8 magic b"LHCHECKP" | 2 version (1) | 6 zero | 8 generation | 8 position: segment | 8 position: offset
    8 next sequence number | 8 next transaction id | 8 number of segments | 8 number of events
    for each segment: 8 number, 16 salt
    for all events: 8 sequence number each; then 8 pointer each (segment << 32 | offset); then 4 length each; then
    8 time of the put each
    4 CRC-32 of everything before

It holds every event before its position that no committed transaction has taken. The log up to its position is on the
disk before the checkpoint is. Opening loads it and replays the log from its position; without a valid checkpoint that
fits the segments, the whole log is replayed. A segment is deleted under three conditions: it holds no events, its
pointer voids nothing in an earlier segment that still exists, and both copies of a checkpoint with a later position are
on the disk. Its Takes and its pointer may concern events of remaining segments. So a Live is synced first, and no event
is delivered again even if both copies are lost. If a segment that a checkpoint needs is missing, the channel does not
open: a directory is not mounted, or was not named. A checkpoint lists all segments that existed when it was written,
including those deleted afterwards. A segment before its position that it does not list was missing then, and is moved
to quarantine. Segment numbers are never reused.
"""
