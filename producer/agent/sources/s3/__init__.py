"""Read the objects of S3 and of compatible stores, by notifications from SQS or by listing a bucket.

An object is known by its bucket, key, ETag and time. The position in its plain bytes is committed with each batch
(:mod:`...ledger`), so an interrupted object is continued there, also after a kill. An object that was read completely
has the position :data:`~.objects.WHOLE`, and is not read again as long as its name is remembered:

* **SQS**: the last 10,000 names. A message is deleted once all its objects are safe in the channels: a durable channel
  has stored them, any other has delivered them. Until then its visibility timeout is extended. A message that fails is
  left to the queue's redrive policy. Several agents share a queue. SQS may deliver a message twice: to the same agent
  it changes nothing, to two agents the object is read twice.
* **Listing**: the last ``look_back`` keys, in the order of keys. Before them stands a marker, where each listing
  begins. So a new object is read if its key sorts behind the marker, and an object that was replaced is read again.

Objects of several ``workers`` arrive side by side. The first bytes decide on the compression, not the name.
"""

from .source import S3Source

__all__ = ["S3Source"]
