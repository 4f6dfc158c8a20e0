"""The JSON Schema of an agent's file refuses what the agent would refuse for its form."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from producer.agent.config.limits import AgentOptions
from producer.agent.config.registry import BUILT_IN, class_of
from producer.cli import main
from producer.model.options import options_of

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "agent").glob("*.toml"))
NGINX = (Path(__file__).parents[3] / "examples" / "agent" / "nginx.toml").read_text()


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda text, **_: printed.append(text))
        assert main(["agent", "schema"]) == 0
    found: dict[str, Any] = json.loads(printed[0])
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def wrong(schema: dict[str, Any], text: str) -> str:
    """Return all errors of the schema as text; empty if it is valid."""
    errors = list(jsonschema.Draft202012Validator(schema).iter_errors(tomllib.loads(text)))
    return "\n".join(str(each) for error in errors for each in [error.message, *(error.context or [])])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_valid(schema: dict[str, Any], path: Path) -> None:
    """The schema accepts each configuration that the agent runs."""
    assert wrong(schema, path.read_text()) == ""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("file_header = true", "file_haeder = true", "'file_haeder' was unexpected"),
        ("monitoring = ", "monitorin = ", "'monitorin' was unexpected"),
        ("[sources.access]", "[source.access]", "'source' was unexpected"),
        ('type = "taildir"', 'type = "taildri"', "'taildri'"),
        ('logstore = "nginx-access"\n', "", "'logstore' is a required property"),
        ('headers = "fields"', 'headers = "feilds"', "'feilds' is not one of ['tags', 'fields', 'none']"),
        ("roll_interval = 3600", "roll_interval = -1", "-1 is less than the minimum of 0"),
        ("roll_interval = 3600", 'roll_interval = "1h"', "'1h' does not match"),
        ('byte_capacity = "4g"', 'byte_capacity = "4 gigabytes"', "'4 gigabytes' does not match"),
        ("timestamp = true", "timestamp = 7", "7 is greater than the maximum of 1"),
    ],
)
def test_a_mistake_is_refused(schema: dict[str, Any], old: str, new: str, told: str) -> None:
    """A misspelt name, a missing option or a value out of range is reported by its name, as by the agent."""
    assert old in NGINX
    assert told in wrong(schema, NGINX.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("roll_interval = 3600", 'roll_interval = "${env:SECONDS}"'),
        ("roll_interval = 3600", 'roll_interval = "3600"'),
        ("file_header = true", 'file_header = "yes"'),
        ('byte_capacity = "4g"', 'byte_capacity = "512MiB"'),
        ('channels = ["queue"]', 'channels = "queue"'),
        ('headers = "fields"', 'headers = "${env:HEADERS}"'),
    ],
)
def test_references_numbers_in_quotes_and_sizes_with_a_unit_are_valid(
    schema: dict[str, Any], old: str, new: str
) -> None:
    """References, numbers in quotes and sizes with a unit are valid."""
    assert old in NGINX
    assert wrong(schema, NGINX.replace(old, new, 1)) == ""


def test_every_key_of_every_table_is_in_it(schema: dict[str, Any]) -> None:
    """The schema has all keys of ``[agent]`` and all options of all types, with descriptions."""
    assert set(schema["properties"]["agent"]["properties"]) == set(options_of(AgentOptions))
    for kind, types in BUILT_IN.items():
        for name in types:
            described = schema["$defs"][f"{kind}.{name}"]["properties"]
            for option in options_of(class_of(kind, name).Options).values():
                assert option.doc in described[option.name]["description"]


def test_the_tests_of_a_file_are_checked(schema: dict[str, Any]) -> None:
    """The schema accepts ``[[tests]]`` as the agent does, and refuses a misspelt key or a wrong value in them."""
    text = NGINX + '\n[[tests]]\ninput = "a"\n[[tests.expect]]\ndropped = true\n'
    assert wrong(schema, text) == ""
    assert "'inptu' was unexpected" in wrong(schema, text.replace("input", "inptu"))
    assert "'yes' is not of type 'boolean'" in wrong(schema, text.replace("= true\n", '= "yes"\n'))
