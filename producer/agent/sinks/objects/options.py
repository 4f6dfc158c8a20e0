"""The options of ``objects``, with the names of Flume's ``hdfs`` sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....model.errors import ConfigError
from ....model.options import check_unset, option
from ....text.extras import how_to_install, is_installed
from ....wire.times import zone_of
from ...config.flume_keys import serializer_of
from ..places import Places, Rounding
from .columns import HEADERS, REST, ColumnRules, safe_name
from .forms import COMPRESSIONS, FORMATS, PACKED_BY_DEFAULT, ending
from .kinds import KINDS, is_kind
from .stores import check_scheme
from .tables import BESIDE

#: Flume's options without effect: an object is written at once, so no file stays open.
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
#: Maximum bytes of an object if ``roll_size`` is 0.
_MOST_BYTES = 256 << 20
_MOST_EVENTS = 10_000_000
#: Options that only Parquet has.
_OF_PARQUET = ("body", "schema", "max_columns", "widen")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsOptions:
    """Options of the ``objects`` sink: those of Flume's ``hdfs``, and more."""

    path: str = option(
        flume="hdfs.path",
        doc="directory or address, such as s3://bucket/logs; may contain %{header} and times such as %Y, %m, %d, %H;"
        " events with an impossible path are refused",
    )
    file_prefix: str = option("events", flume="hdfs.filePrefix", doc="prefix of names; may contain the same")
    file_suffix: str | None = option(None, flume="hdfs.fileSuffix", doc="suffix of names; empty for the format's")
    format: str = option("text", flume="serializer", doc="format of objects", choices=FORMATS)
    compression: str | None = option(
        None, flume="hdfs.codeC", doc="compression; empty for gzip, or zstd for Parquet", choices=COMPRESSIONS
    )
    columns: tuple[str, ...] = option(
        (), doc="headers that become Parquet columns, if not all; the map headers has the others"
    )
    body: str = option(
        "text", choices=("text", "json"), doc="Parquet: a column of bodies, or columns of their JSON objects' fields"
    )
    schema: Mapping[str, str] = option(
        {},
        doc=f"Parquet: types of columns by name ({', '.join(KINDS)}, or list<...> of one); other fields have"
        " types of their values, which may differ between agents, and headers are text",
    )
    max_columns: int = option(
        1000,
        least=0,
        most=10_000,
        doc="Parquet: number of columns at which headers and fields add no more; _rest has the others as JSON text",
    )
    widen: bool = option(
        True,
        doc="Parquet: values of another type make the column double or string in the next file; false: they go to"
        " _rest, so that Spark and Hive can read all files together",
    )
    roll_size: int = option(
        32 << 20,
        flume="hdfs.rollSize",
        least=0,
        unit="bytes",
        doc="bytes of bodies in an object, before compression; 0 for 256 MiB",
    )
    roll_count: int = option(0, flume="hdfs.rollCount", least=0, doc="events in an object; 0 disables")
    roll_interval: float = option(
        300.0,
        flume="hdfs.rollInterval",
        least=0,
        doc="write an object after so many seconds, but at once in a group with other types; 0 disables",
    )
    idle_timeout: float = option(
        0.0, flume="hdfs.idleTimeout", least=0, doc="write an object after so many idle seconds; 0 disables"
    )
    round: bool = option(False, flume="hdfs.round", doc="round times in paths down")
    round_value: int = option(1, flume="hdfs.roundValue", least=1, most=60, doc="round to a multiple of this number")
    round_unit: str = option("second", flume="hdfs.roundUnit", choices=("second", "minute", "hour"), doc="unit")
    time_zone: str | None = option(None, flume="hdfs.timeZone", doc="time zone of paths; empty for this machine's")
    time_header: str = option("timestamp", doc="header with an event's time in milliseconds since the epoch")
    use_local_time_stamp: bool = option(
        False, flume="hdfs.useLocalTimeStamp", doc="use the time of writing in paths, not the header"
    )
    file_type: str | None = option(None, flume="hdfs.fileType", doc="accepted from Flume's files: only plain files")
    storage: Mapping[str, str] = option({}, secret=True, doc="arguments for fsspec: key, secret, endpoint_url, …")

    def holds(self) -> int:
        """Return the maximum bytes that the sink holds: a delivery, and the objects made of it."""
        return 3 * self.most_bytes + (BESIDE if self.format == "parquet" else 0)

    def __post_init__(self) -> None:
        check_scheme(self.path)
        self.places()
        if self.file_type is not None and self.file_type.lower() not in _PLAIN_FILES:
            rule = "must be DataStream or CompressedStream: sequence files, Flume's default, are not supported"
            raise ConfigError("file_type", rule, self.file_type)
        if self.format == "parquet" and not is_installed("pyarrow"):
            raise ConfigError("format", f"parquet needs pyarrow: {how_to_install('arrow')}", self.format)
        if self.compression == "snappy" and self.format != "parquet":
            raise ConfigError("compression", "snappy is only for parquet", self.compression)
        self._check_columns()

    def _check_columns(self) -> None:
        if self.format != "parquet":
            check_unset(self, _OF_PARQUET, "is only for parquet")
        for name, kind in self.schema.items():
            if not is_kind(kind):
                raise ConfigError("schema", f"must have types of {', '.join(KINDS)}, or list<...> of one", kind)
            if (folded := safe_name(name).lower()) == REST or (folded == HEADERS and self.columns):
                raise ConfigError("schema", f"must not have the column {folded}, which the sink writes", name)
        names = [safe_name(name).lower() for name in self.schema]
        if len(set(names)) < len(names):
            raise ConfigError("schema", "must have names that differ in letters or digits", " ".join(self.schema))

    @property
    def packed(self) -> str:
        """The compression of objects."""
        return self.compression or PACKED_BY_DEFAULT[self.format]

    @property
    def column_rules(self) -> ColumnRules:
        """The rules for the columns of a table."""
        return ColumnRules(
            body_is_json=self.body == "json",
            declared=self.schema,
            headers=self.columns,
            time_header=self.time_header,
            most=self.max_columns,
            widens=self.widen,
        )

    @property
    def suffix(self) -> str:
        """The suffix of objects' names."""
        return ending(self.format, self.packed) if self.file_suffix is None else self.file_suffix

    @property
    def most_events(self) -> int:
        """The maximum number of events in an object."""
        return self.roll_count or _MOST_EVENTS

    @property
    def most_bytes(self) -> int:
        """The maximum bytes in an object."""
        return self.roll_size or _MOST_BYTES

    def places(self) -> Places:
        """Return the rule for the paths of objects.

        :raises ConfigError: a path or a time zone is invalid.
        """
        rounding = Rounding(self.round_unit if self.round else "", self.round_value)
        header = None if self.use_local_time_stamp else self.time_header
        zone = None if self.time_zone is None else zone_of(self.time_zone)
        return Places(f"{self.path.rstrip('/')}/{self.file_prefix}", zone, rounding, header)

    @staticmethod
    def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
        """Add Flume's defaults, and rename its values; drop options without effect."""
        found = {"hdfs.fileType": "SequenceFile"}
        found |= {key: value for key, value in texts.items() if key not in _NEEDLESS}
        if found["hdfs.fileType"].lower() in _PLAIN_FILES:
            del found["hdfs.fileType"]
        found["serializer"] = serializer_of(found.get("serializer", "text"))
        codec = found.pop("hdfs.codeC", "none").lower()
        found["hdfs.codeC"] = codec.removesuffix("codec").rpartition(".")[2]
        return {"hdfs.filePrefix": "FlumeData", "hdfs.rollInterval": "30", **found}
