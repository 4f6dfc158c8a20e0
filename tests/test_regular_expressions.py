"""The package's regular expressions match alike with every Python.

Before 3.11.5, and so in Debian 12, a possessive repeat ends at the wrong place if its body fails after a look-ahead or
a repeat in it, and groups in it are lost (python/cpython#100061, #101955).
"""

import importlib
import pkgutil
import re
import re._constants as sre
import re._parser
import sys
import warnings
from collections.abc import Iterator

import producer
from producer.wire.key_value import _pair

_ONE = {sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY}


def test_possessive_repeats_are_of_plain_characters() -> None:
    """No pattern repeats possessively more than characters and alternatives of them, or captures in such a repeat."""
    patterns = [*_patterns(), _pair(" ", "="), _pair(", ", "=>")]
    assert len(patterns) > 100
    faults = {pattern.pattern: list(_faults(re._parser.parse(pattern.pattern, pattern.flags))) for pattern in patterns}
    assert {pattern: found for pattern, found in faults.items() if found} == {}


def test_the_check_finds_what_older_pythons_match_wrongly() -> None:
    """The check finds a look-ahead, a repeat before the end and a group in a possessive repeat, but no atomic group."""
    wrong = {each: list(_faults(re._parser.parse(each))) for each in (r"(?:(?!b).)*+", r"(?:a+b)*+", r"(?:x|(a))?+")}
    assert all(wrong.values()), wrong
    for right in (r"(?>(?:(?!b).)*)", r"(?:[^'\\]|\\.)*+", r"(?:\\.[^\\]*+)*+"):
        assert not list(_faults(re._parser.parse(right))), right


def _patterns() -> Iterator[re.Pattern[str] | re.Pattern[bytes]]:
    for module in pkgutil.walk_packages(producer.__path__, "producer."):
        if not module.name.endswith("__main__"):
            with warnings.catch_warnings(action="ignore"):
                importlib.import_module(module.name)
    for name, module in list(sys.modules.items()):
        if name.startswith("producer."):
            yield from (each for each in vars(module).values() if isinstance(each, re.Pattern))


def _faults(tree: re._parser.SubPattern, possessive: bool = False) -> Iterator[str]:
    for operator, argument in tree:
        if operator is sre.SUBPATTERN and possessive and argument[0] is not None:
            yield f"group {argument[0]}"
        if operator is sre.POSSESSIVE_REPEAT and not _is_plain(argument[2]):
            yield f"repeat of {argument[2]}"
        inner = possessive or operator in {sre.POSSESSIVE_REPEAT, sre.ATOMIC_GROUP}
        for child in _children(argument):
            yield from _faults(child, inner)


def _children(argument: object) -> Iterator[re._parser.SubPattern]:
    if isinstance(argument, re._parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from _children(each)


def _is_plain(body: re._parser.SubPattern) -> bool:
    # A repeat at the end that may be empty cannot fail.
    last = len(body) - 1
    return all(
        operator in _ONE
        or (operator is sre.BRANCH and all(_is_plain(each) for each in argument[1]))
        or (operator is sre.SUBPATTERN and _is_plain(argument[3]))
        or (operator is sre.POSSESSIVE_REPEAT and at == last and argument[0] == 0 and _is_plain(argument[2]))
        for at, (operator, argument) in enumerate(body)
    )
