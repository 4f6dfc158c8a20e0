"""Read a whole logstore, log by log and without Spark, to compare it with its source.

The protobuf library decodes each field: neither the column reader nor the sending code takes part.
"""

from __future__ import annotations

from collections.abc import Iterator

from producer.spark.logstore import LogstoreClient
from producer.wire.cursors import MAX_PULL_COUNT
from producer.wire.schema import Content, FramedLogGroupList


def all_logs(client: LogstoreClient) -> Iterator[dict[str, str]]:
    """Yield the fields of every log of every shard, with the tags of its group.

    :raises LogHubReadError: the server refused a request.
    """
    for shard in client.shards():
        cursor, at_end = client.cursor(shard, "begin"), False
        while not at_end:
            pulled = client.pull_columns(shard, cursor, MAX_PULL_COUNT)
            cursor, at_end = pulled.next_cursor, pulled.at_end
            for group in FramedLogGroupList.FromString(pulled.body).LogGroups:
                tags = {f"__tag__:{tag.Key.decode()}": tag.Value.decode() for tag in group.LogTags}
                for log in group.Logs:
                    fields = map(Content.FromString, log.Contents)
                    yield {field.Key.decode(): field.Value.decode() for field in fields} | tags
