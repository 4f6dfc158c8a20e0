"""Read the objects of S3 and of compatible stores, by notifications from SQS or by listing a bucket.

Bucket, key, ETag and time identify an object. Each batch commits the offset in the decompressed bytes
(:mod:`...ledger`), so an interrupted object is resumed there, also after a crash. An object that was read completely
has the offset :data:`~.objects.WHOLE`, and is not read again as long as its name is remembered:

* **SQS**: the last 10,000 names. A message is deleted once all its objects are safe in the channels: a durable channel
  has stored them, any other has delivered them. Until then its visibility timeout is extended. A message that fails is
  left to the queue's redrive policy. Several agents may share a queue. An agent ignores a message that SQS delivers to
  it twice. If two agents get the message, both read the object.
* **Listing**: the last ``look_back`` keys, in lexical order. Each listing begins at a marker before them. So a new
  object is read if its key sorts after the marker, and an object that was replaced is read again.

The lines of several objects are interleaved if ``workers`` is more than 1. The first bytes, not the name, decide the
compression.
"""

from .source import S3Source

__all__ = ["S3Source"]
