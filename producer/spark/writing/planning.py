"""What can be found wrong before a job begins: columns, their types, the logstore, the credentials."""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Iterable, Iterator

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    CalendarIntervalType,
    CharType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    UserDefinedType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from ...config import ProducerConfig
from ...errors import AttemptError, ConfigError, MisconfiguredError, NetworkError
from ..errors import LogHubReadError
from ..logstore import LogstoreClient
from ..options import Target, knows_credentials
from .options import Columns, column_options

_log = logging.getLogger("producer.spark.write")

#: How often LogHub is asked for the logstore before the job begins, besides the first time, and the longest pause.
_RETRIES, _LONGEST_PAUSE_MS = 3, 1000

# What a refusal of the question says about the options. Unauthorized is not among them: it may mean the question alone.
_OPTION_OF_CODE = {
    "InvalidAccessKeyId": "accessKeyId",
    "MissAccessKeyId": "accessKeyId",
    "SignatureNotMatch": "accessKeySecret",
    "SecurityTokenExpired": "securityToken",
    "InvalidSecurityToken": "securityToken",
    "ProjectNotExist": "project",
    "LogStoreNotExist": "logstore",
    "LogstoreNotExist": "logstore",
    "ParameterInvalid": "logstore",
}

_TEXT = (StringType, CharType, VarcharType)
_TIMES = (TimestampType, ByteType, ShortType, IntegerType, LongType)
_WITHOUT_TEXT = (DayTimeIntervalType, YearMonthIntervalType, CalendarIntervalType, VariantType, UserDefinedType)

_WANTED: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "time": (_TIMES, "a timestamp with a time zone, or an integer of Unix seconds"),
    "topic": (_TEXT, "text"),
    "source": (_TEXT, "text"),
    "shard_hash": (_TEXT, "text"),
    "contents": ((MapType,), "a map of text to values"),
}


def check_schema(schema: StructType, columns: Columns, row_labels: Iterable[str] = ()) -> None:
    """Check that the DataFrame has the columns that the options name, and that all others can become fields.

    :raises ConfigError: names the option, or the column.
    """
    for role, option in column_options().items():
        name = getattr(columns, role)
        if name is not None:
            _check_role(schema, role, option, name)
    for name in row_labels:
        if name not in schema.fieldNames():
            raise _no_column(schema, "rowLabels", name)
    for path, kind in _parts(schema):
        if isinstance(kind, _WITHOUT_TEXT):
            rule = f"a column of type {kind.simpleString()} has no text; cast it, or leave it out with drop()"
            raise ConfigError(f"column {path}", rule, kind.simpleString())


def _check_role(schema: StructType, role: str, option: str, name: str) -> None:
    if name not in schema.fieldNames():
        raise _no_column(schema, option, name)
    kind = schema[name].dataType
    types, words = _WANTED[role]
    fits = isinstance(kind, types)
    if fits and isinstance(kind, MapType):
        fits = isinstance(kind.keyType, _TEXT)
    if not fits:
        raise ConfigError(option, f"must be a column of {words}; {name} is a {kind.simpleString()}", name)


def _no_column(schema: StructType, option: str, name: str) -> ConfigError:
    near = difflib.get_close_matches(name, schema.fieldNames(), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"its columns are {', '.join(schema.fieldNames())}"
    return ConfigError(option, f"must be a column of the DataFrame; {hint}", name)


def _parts(kind: DataType, path: str = "") -> Iterator[tuple[str, DataType]]:
    """Every type in a type, with the place that it has."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _parts(field.dataType, f"{path}.{field.name}" if path else field.name)
    elif isinstance(kind, ArrayType):
        yield from _parts(kind.elementType, path)
    elif isinstance(kind, MapType):
        yield from _parts(kind.keyType, path)
        yield from _parts(kind.valueType, path)
    else:
        yield path, kind


def check_target(target: Target, config: ProducerConfig, *, patient: bool) -> None:
    """Ask LogHub for the logstore's shards, to find out now what would else fail every task.

    A key that may write and not list shards is as good as any; what only the executors' environment knows cannot be
    tried here.

    :param config: how requests travel.
    :param patient: whether a server that cannot be reached or is busy is no error: it may be there again when the rows
        are.
    :raises ConfigError: names the option that is wrong.
    """
    if not knows_credentials(target):
        return
    quick = dataclasses.replace(config, retries=_RETRIES, max_retry_backoff_ms=_LONGEST_PAUSE_MS)
    try:
        with LogstoreClient(target, quick) as client:
            client.list_shards()
    except LogHubReadError as error:
        cause = error.__cause__
        option = _option_at_fault(cause)
        if option is None or (option == "endpoint" and patient):
            _log.warning("could not ask for %s before the job, going on: %s", target, error)
            return
        rule = f"{error} (asked before the job; checkTarget=false leaves that out)"
        raise ConfigError(option, rule, _shown(target, option)) from error


def _option_at_fault(cause: BaseException | None) -> str | None:
    if not isinstance(cause, AttemptError):
        return None
    if cause.code in _OPTION_OF_CODE:
        return _OPTION_OF_CODE[cause.code]
    unsent = isinstance(cause, MisconfiguredError) and cause.http_status is None
    return "endpoint" if unsent or isinstance(cause, NetworkError) else None


def _shown(target: Target, option: str) -> str:
    shown = {"endpoint": target.project.endpoint, "project": target.project.project, "logstore": target.logstore}
    return shown.get(option, "***")
