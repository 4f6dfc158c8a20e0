"""Arrow columns become records, a whole column at a time; byte for byte what ``send`` makes of the same rows.

Arrow's kernels make text of whole columns; then one of two twins encodes the rows (see :mod:`.rows`). A record is a
sequence of short byte strings: the frame, the Time field, and for each field of the log what precedes its value, and
the value. The compiled twin writes them row by row from Arrow's buffers. For the pure one, what precedes a value is
looked up in a table by its length; all tables and all columns stand one behind the other in one Arrow array; a matrix
of positions in it, one line a record, says what the records are made of, and one ``take`` copies everything to its
place. No Python runs for a row, unless its values need it: structures, which become JSON, and numbers that Arrow writes
otherwise than ``repr``.

========================  ====================================================================================
Arrow type                text
========================  ====================================================================================
text and bytes            as they are
numbers, booleans         as :func:`~producer.model.records.text_of`; decimals never in floating point
dates, times, timestamps  ISO 8601, in the column's zone; nanoseconds, where there are any, with nine digits
lists, structs, maps      compact JSON; maps are objects, and of equal keys the last one counts
dictionaries, runs        as their values
extension types           as the values that they have in Python, else as their storage
null                      no field, as a missing value of any type
durations, intervals      refused: ``send`` has no text for them either
========================  ====================================================================================

Two columns of one name become two fields of that name. Needs the extra ``arrow``; nothing imports this package but
what needs it.
"""

from .encoder import ColumnarEncoder
from .picking import Grouping, Names
from .rows import EncodedRows

__all__ = ["ColumnarEncoder", "EncodedRows", "Grouping", "Names"]
