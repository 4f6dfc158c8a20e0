"""Encodes Arrow columns as records, a whole column at a time, with the same bytes as ``send`` for each row.

Arrow's kernels convert whole columns to text; then the native or pure implementation encodes the rows (:mod:`.rows`). A
record is a sequence of short byte strings: the frame, the Time field, and each field of the log as a prefix and a
value. Native code writes them row by row from Arrow's buffers.

The pure implementation looks up prefixes in a table by the length of the value. It concatenates all tables and columns
to one Arrow array. A matrix of positions in it, one line per record, describes the records, and a single ``take``
copies all parts. No Python code runs per row, except for structures, which become JSON, and for numbers that Arrow and
``repr`` write differently.

========================  ====================================================================================
Arrow type                text
========================  ====================================================================================
text and bytes            unchanged
numbers, booleans         as :func:`~producer.model.records.text_of`; decimals never in floating point
dates, times, timestamps  ISO 8601, in the column's zone; nanoseconds, if there are any, with nine digits
lists, structs, maps      compact JSON; maps are objects, and the last of equal keys is used
dictionaries, runs        as their values
extension types           as the values that they have in Python, else as their storage
null                      no field, as a missing value of any type
durations, intervals      rejected: ``send`` has no text for them either
========================  ====================================================================================

Two columns of one name become two fields of that name. The package needs the extra ``arrow``.
"""  # prose: a table, not a sentence

from .encoder import ColumnarEncoder
from .picking import Grouping, Names
from .rows import EncodedRows

__all__ = ["ColumnarEncoder", "EncodedRows", "Grouping", "Names"]
