from __future__ import annotations

import sys

import pytest

from producer.agent.config.options import AgentConfigError
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


def test_separators_and_escapes_are_only_javas() -> None:
    """Two escapes make one character beyond 16 bits, and other blanks than Java's separate nothing."""
    assert parse_properties("a = \\ud83d\\ude00\nb\u2028c = 1").values == {"a": "\N{GRINNING FACE}", "b\u2028c": "1"}


def test_an_invalid_escape_is_an_error_with_its_line() -> None:
    """An invalid escape is an error with its line, as it is for Java."""
    with pytest.raises(AgentConfigError, match=r"a\.properties(?s:.*)line 3.*u00zz.*: write four hexadecimal digits"):
        parse_properties("a = 1\n\nb = \\u00zz\n", "a.properties")


def test_without_the_extra_a_properties_file_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without javaproperties, a properties file is an error with the command that installs it."""
    monkeypatch.setitem(sys.modules, "javaproperties", None)
    with pytest.raises(AgentConfigError, match=r"needs the Python package javaproperties: .*pip install"):
        parse_properties("a = 1")
