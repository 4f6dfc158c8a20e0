from __future__ import annotations

from producer.agent.config.properties_text import parse_properties


def test_a_file_is_read_as_java_reads_it() -> None:
    """Separators, escapes, continuation lines and comments are those of ``java.util.Properties``."""
    text = (
        "# comment\\\n"
        "! another\n"
        "a = 1\n"
        "b:2\r\n"
        "c 3\n"
        "  d=4 = 5  \n"
        "e\\ f\\=g = x\\ty\\u00e9\\q\n"
        "list = one \\\n"
        "       two \\\n"
        "       three\n"
        "even = back\\\\\n"
        "empty\n"
        "=nothing\n"
        "a = again\n"
        "last = open\\"
    )
    properties = parse_properties(text)
    assert properties.values == {
        "a": "again",
        "b": "2",
        "c": "3",
        "d": "4 = 5",
        "e f=g": "x\tyéq",
        "list": "one two three",
        "even": "back\\",
        "empty": "",
        "": "nothing",
        "last": "open",
    }
    assert properties.lines["list"] == 8
    assert properties.lines["even"] == 11
    assert properties.repeated == {"a": 3}
