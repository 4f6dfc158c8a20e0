"""The record of a line always allows to restore its bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from producer.ship.lines.line import Line
from producer.ship.lines.names import MAX_NAME_BYTES
from producer.ship.lines.parsers import Parser, make_parser
from producer.ship.lines.record import content_bytes, to_record

_JSON = make_parser("json")
_TEXT = make_parser("text")


def fields_of(line: Line, parser: Parser) -> dict[str, str]:
    """Return the fields that are sent for a line."""
    return to_record(line, parser).fields(line, offset=True)


def test_line_is_kept_beside_its_fields() -> None:
    """The raw line is in ``content``, with its offset, whatever the parser found."""
    line = Line(7, 0, b'{"level":"INFO"}')
    assert fields_of(line, _JSON) == {
        "content": '{"level":"INFO"}',
        "__file_offset__": "7",
        "level": "INFO",
    }
    assert to_record(line, _JSON).parsed


def test_line_of_another_format_is_shipped_as_text() -> None:
    """A line of another format is shipped as text, and counted as not parsed."""
    line = Line(0, 0, b"not json")
    assert fields_of(line, _JSON) == {"content": "not json", "__file_offset__": "0"}
    assert not to_record(line, _JSON).parsed


def test_parser_text_leaves_no_line_unparsed() -> None:
    """With the parser ``text``, no line counts as unparsed."""
    assert to_record(Line(0, 0, b"anything"), _TEXT).parsed


def test_empty_line_is_a_record_with_empty_content() -> None:
    """An empty line is shipped, so the number of records is the number of lines."""
    assert fields_of(Line(3, 0, b""), _TEXT)["content"] == ""


def test_invalid_utf8_is_shown_escaped_and_kept_exactly() -> None:
    r"""Bytes that are not UTF-8 appear as \xNN, and the exact bytes are in ``content_base64``."""
    fields = fields_of(Line(0, 0, b"caf\xe9 \xc3\xa9"), _TEXT)
    assert fields["content"] == "caf\\xe9 é"
    assert content_bytes(fields) == b"caf\xe9 \xc3\xa9"


def test_line_that_contains_an_escape_is_not_mistaken_for_one() -> None:
    r"""A line that contains the text \xe9 is valid, and is restored unchanged."""
    fields = fields_of(Line(0, 0, b"caf\\xe9"), _TEXT)
    assert "content_base64" not in fields
    assert content_bytes(fields) == b"caf\\xe9"


@given(data=st.binary(max_size=100))
def test_for_any_bytes_the_record_restores_them_and_every_field_can_be_encoded_as_utf_8(data: bytes) -> None:
    """For any bytes, the record restores them, and every field can be encoded as UTF-8."""
    fields = fields_of(Line(0, 0, data), make_parser("auto"))
    assert content_bytes(fields) == data
    assert "".join(fields.values()).encode()


def test_reserved_names_get_an_underscore() -> None:
    """A parsed field never replaces one of the job, of LogHub, or another parsed one."""
    line = b'{"content":"c","content_":"d","__file_offset__":"p","__time__":1,"__tag__:x":"t","":"e"}'
    fields = fields_of(Line(0, 0, line), _JSON)
    assert fields["content"] == line.decode()
    assert fields["__file_offset__"] == "0"
    assert {name: value for name, value in fields.items() if name not in {"content", "__file_offset__"}} == {
        "content_": "c",
        "content__": "d",
        "__file_offset___": "p",
        "__time___": "1",
        "___tag__:x": "t",
        "_": "e",
    }


def test_half_a_surrogate_pair_does_not_stop_the_line() -> None:
    r"""A lone surrogate in JSON, which UTF-8 cannot encode, is escaped."""
    assert fields_of(Line(0, 0, b'{"a":"\\ud800"}'), _JSON)["a"] == "\\ud800"


def test_field_name_longer_than_loghub_takes_makes_the_line_text() -> None:
    """A field name over the limit makes the line text, instead of failing its batch."""
    line = b'{"' + b"k" * (MAX_NAME_BYTES + 1) + b'":1}'
    record = to_record(Line(0, 0, line), _JSON)
    assert not record.parsed
    assert record == record.as_text()


def test_piece_of_a_long_line_is_not_parsed() -> None:
    """A piece of a long line is shipped as text, with its number, and not parsed."""
    line = Line(0, 2, b'{"a":1}')
    assert fields_of(line, _JSON)["line_part"] == "2"
    assert "a" not in fields_of(line, _JSON)
    assert not to_record(line, _JSON).parsed
