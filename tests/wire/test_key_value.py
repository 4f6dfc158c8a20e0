"""key_value."""

import time

import pytest

from producer.wire.key_value import key_value_parser


@pytest.mark.parametrize(
    ("pairs", "values", "line", "fields"),
    [
        (" ", "=", "login failed user=jo  ip=", {"user": "jo", "ip": ""}),
        (" ", "=", 'a="x y" b="\\"\\\\" c="x"y u=h?q=1', {"a": "x y", "b": '"\\', "c": '"x"y', "u": "h?q=1"}),
        (" ", "=", "a=1\tb=2 a=3", {"a": "3", "b": "2"}),
        ("]", "^", "a-^1]b\\^2", {"a-": "1", "b\\": "2"}),  # separators that mean something in a class
        (";", ":", 'a : 1 ; b: "x;y" ; c:; d', {"a": "1", "b": "x;y", "c": ""}),
        ("&", "=", "a=1&b=2 3", {"a": "1", "b": "2 3"}),
        ("|", "=>", "a => 1 | b=>2", {"a": "1", "b": "2"}),
        (", ", "=", "a=1, b=2,3", {"a": "1", "b": "2,3"}),
        (" ", "=", "=1 no pair", None),
        (" ", "=", "", None),
        (" ", "=", 'a="x b=2', {"a": '"x', "b": "2"}),
    ],
)
def test_pairs(pairs, values, line, fields):
    """Keys and values are found between separators of any kind; other text is skipped, and quotes keep separators."""
    assert key_value_parser(pairs, values)(line) == fields


@pytest.mark.parametrize("unit", ["a", 'a="', 'a="\\', " ", "a=1 ", "a:", "a=' b=\" "])
@pytest.mark.parametrize(("pairs", "values"), [(" ", "="), (";", ":")])
def test_a_hostile_line_takes_linear_time(pairs, values, unit):
    """A line of any shape is parsed in time in proportion to its length."""
    parse, began = key_value_parser(pairs, values), time.process_time()
    parse(unit * 100_000)
    assert time.process_time() - began < 10
