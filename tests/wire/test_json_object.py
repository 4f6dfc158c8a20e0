"""json_object."""

import json

import pytest

from producer.wire.json_object import parse_flat_json, parse_json


def test_inner_objects_become_fields_with_joined_names():
    """Flat fields have the keys of all levels in their names; lists, empty objects and deeper levels stay JSON."""
    line = '{"a": {"b": {"c": "x", "n": null}, "l": [{"y": 1}], "e": {}}, "t": true}'
    assert parse_flat_json(line, "_") == {"a_b_c": "x", "a_l": '[{"y":1}]', "a_e": "{}", "t": "true"}
    deep = parse_flat_json('{"a":' * 20 + "1" + "}" * 20, ".")
    assert deep == {".".join("a" * 16): '{"a":' * 4 + "1" + "}" * 4}


def test_flat_names_take_bounded_memory():
    """The name of an outer key, however long, is not repeated for each inner key."""
    line = json.dumps({"k" * 100_000: {f"i{n}": n for n in range(1000)}})
    fields = parse_flat_json(line, ".")
    assert fields is not None
    assert sum(map(len, fields)) < len(line)


@pytest.mark.parametrize("line", ["", "x", "[1]", '{"a":', '{"a":1} x', '{"a":' * 100_000, '{"a":1' + "1" * 5000 + "}"])
def test_other_lines_have_no_fields(line):
    """A line that is no JSON object, or that Python cannot parse, has no fields and raises nothing."""
    assert parse_json(line) is None
    assert parse_flat_json(line, ".") is None
