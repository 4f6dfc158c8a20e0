"""The options of ``objects``, with the names that Flume's ``hdfs`` sink has for them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass

from ....model.errors import ConfigError
from ....model.options import option
from ....text.extras import how_to_install
from ....wire.times import zone_of
from ...config.flume_keys import serializer_of
from .forms import COMPRESSIONS, FORMATS, PACKED_BY_DEFAULT, ending
from .places import Places, Rounding
from .stores import check_scheme

#: Of Flume's keys those that change nothing here: an object is made at once, and there is nothing to keep open.
_NEEDLESS = frozenset(
    {
        "hdfs.batchSize",
        "hdfs.callTimeout",
        "hdfs.closeTries",
        "hdfs.emptyInUseSuffix",
        "hdfs.inUsePrefix",
        "hdfs.inUseSuffix",
        "hdfs.maxOpenFiles",
        "hdfs.minBlockReplicas",
        "hdfs.retryInterval",
        "hdfs.rollTimerPoolSize",
        "hdfs.threadsPoolSize",
        "hdfs.writeFormat",
    }
)
_PLAIN_FILES = ("datastream", "compressedstream")
#: Bytes of an object, where no end is set for them.
_MOST_BYTES = 256 << 20
_MOST_EVENTS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsOptions:
    """Those of Flume's ``hdfs``, and some more."""

    path: str = option(
        flume="hdfs.path",
        doc="a directory, or an address such as s3://bucket/logs; may hold %{header}, %Y, %m, %d, %H and their like",
    )
    file_prefix: str = option("events", flume="hdfs.filePrefix", doc="what names begin with; may hold the same")
    file_suffix: str | None = option(None, flume="hdfs.fileSuffix", doc="what names end with; empty for the format's")
    format: str = option("text", flume="serializer", doc="what an object holds", choices=FORMATS)
    compression: str | None = option(
        None, flume="hdfs.codeC", doc="how it is packed; empty for gzip, and zstd of Parquet", choices=COMPRESSIONS
    )
    columns: tuple[str, ...] = option((), doc="headers that are columns of Parquet; all others are in the map headers")
    roll_size: int = option(
        32 << 20,
        flume="hdfs.rollSize",
        least=0,
        unit="bytes",
        doc="bytes of bodies of an object, unpacked; 0 for 256 MiB",
    )
    roll_count: int = option(0, flume="hdfs.rollCount", least=0, doc="events of an object; 0 for no such end")
    roll_interval: float = option(
        300.0, flume="hdfs.rollInterval", least=0, doc="seconds after which an object is written; 0 for no such end"
    )
    idle_timeout: float = option(
        0.0, flume="hdfs.idleTimeout", least=0, doc="seconds in which nothing came, likewise; 0 for no such end"
    )
    round: bool = option(False, flume="hdfs.round", doc="round times in paths down")
    round_value: int = option(1, flume="hdfs.roundValue", least=1, most=60, doc="to so many")
    round_unit: str = option("second", flume="hdfs.roundUnit", choices=("second", "minute", "hour"), doc="of these")
    time_zone: str | None = option(None, flume="hdfs.timeZone", doc="of times in paths; empty for this machine's")
    time_header: str = option("timestamp", doc="the header with an event's time, milliseconds since 1970")
    use_local_time_stamp: bool = option(
        False, flume="hdfs.useLocalTimeStamp", doc="times in paths are those of writing, not those of the header"
    )
    file_type: str | None = option(None, flume="hdfs.fileType", doc="taken from Flume's files: plain ones are made")
    storage: Mapping[str, str] = option({}, secret=True, doc="what fsspec is given: key, secret, endpoint_url, …")

    def holds(self) -> int:
        """Bytes at most: a delivery, and the objects that are made of it."""
        return 3 * (self.roll_size or _MOST_BYTES)

    def __post_init__(self) -> None:
        check_scheme(self.path)
        self.places()
        if self.file_type is not None and self.file_type.lower() not in _PLAIN_FILES:
            rule = "must be DataStream or CompressedStream: sequence files, Flume's default, are not made here"
            raise ConfigError("file_type", rule, self.file_type)
        if self.format == "parquet" and importlib.util.find_spec("pyarrow") is None:
            raise ConfigError("format", f"parquet needs pyarrow: {how_to_install('arrow')}", self.format)
        if self.compression == "snappy" and self.format != "parquet":
            raise ConfigError("compression", "snappy is for parquet", self.compression)

    @property
    def packed(self) -> str:
        """How it is packed."""
        return self.compression or PACKED_BY_DEFAULT[self.format]

    @property
    def suffix(self) -> str:
        """Of names."""
        return ending(self.format, self.packed) if self.file_suffix is None else self.file_suffix

    @property
    def most_events(self) -> int:
        """Of an object."""
        return self.roll_count or _MOST_EVENTS

    @property
    def most_bytes(self) -> int:
        """Of an object."""
        return self.roll_size or _MOST_BYTES

    def places(self) -> Places:
        """Where objects go.

        :raises ConfigError: that cannot be read.
        """
        rounding = Rounding(self.round_unit if self.round else "", self.round_value)
        header = None if self.use_local_time_stamp else self.time_header
        zone = None if self.time_zone is None else zone_of(self.time_zone)
        return Places(f"{self.path.rstrip('/')}/{self.file_prefix}", zone, rounding, header)

    @staticmethod
    def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
        """Flume's defaults where they can be had, and its words."""
        found = {"hdfs.fileType": "SequenceFile"}
        found |= {key: value for key, value in texts.items() if key not in _NEEDLESS}
        if found["hdfs.fileType"].lower() in _PLAIN_FILES:
            del found["hdfs.fileType"]
        found["serializer"] = serializer_of(found.get("serializer", "text"))
        codec = found.pop("hdfs.codeC", "none").lower()
        found["hdfs.codeC"] = codec.removesuffix("codec").rpartition(".")[2]
        return {"hdfs.filePrefix": "FlumeData", "hdfs.rollInterval": "30", **found}
