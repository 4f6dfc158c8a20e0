"""The lowest versions that pyproject.toml allows, as constraints for pip: ``python -m tests.lower_bounds``; with names
of extras, those of the core and of these extras only, as requirements.

Needs nothing but the standard library, since it runs before anything is installed.
"""

import re
import sys
import tomllib
from collections.abc import Collection

from .requirements import PYPROJECT, requirements

# name[extra]>=version, and what follows: an upper bound, a marker.
_BOUND = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?>=(?P<version>[\w.]+)[^;]*(?P<marker>;.*)?")


def lower_bounds(pyproject: str, extras: Collection[str] = ()) -> list[str]:
    """Return ``name==version`` for every dependency, those of the extras included, with its marker.

    :param pyproject: the text of the file.
    :param extras: empty for all.
    :raises KeyError: there is no such extra.
    :raises ValueError: a dependency has no lower bound.
    """
    chosen = extras or tomllib.loads(pyproject)["project"]["optional-dependencies"]
    return sorted({_lowest(one) for name in chosen for one in requirements(pyproject, name)})


def _lowest(requirement: str) -> str:
    bound = _BOUND.fullmatch(requirement)
    if bound is None:
        raise ValueError(f"{requirement}: has no lower bound, which is to be written name>=version")
    return f"{bound['name']}=={bound['version']}{bound['marker'] or ''}"


if __name__ == "__main__":
    print("\n".join(lower_bounds(PYPROJECT.read_text(encoding="utf-8"), sys.argv[1:])))
