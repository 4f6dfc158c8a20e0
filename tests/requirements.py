"""Print the requirements of an extra or a dependency group for pip: ``python -m tests.requirements dev``.

The package itself is left out, so that it is compiled while pip installs the rest. The program needs only the standard
library, since it runs before anything is installed.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements(pyproject: str, extra: str) -> list[str]:
    """Return the package's dependencies and those of an extra or group, with what it includes, in their order.

    :param pyproject: the text of the file.
    :raises KeyError: there is no such extra and no such group.
    """
    text = tomllib.loads(pyproject)
    project = text["project"]
    lists = {**text.get("dependency-groups", {}), **project["optional-dependencies"]}
    own = re.compile(re.escape(project["name"]) + r"\[([^]]*)\]")

    def wanted(name: str) -> Iterator[str]:
        for one in lists[name]:
            if isinstance(one, dict):
                yield from wanted(one["include-group"])
            elif found := own.fullmatch(one):
                for other in found[1].split(","):
                    yield from wanted(other.strip())
            else:
                yield one

    return list(dict.fromkeys([*wanted(extra), *project["dependencies"]]))


if __name__ == "__main__":
    print("\n".join(requirements(PYPROJECT.read_text(encoding="utf-8"), sys.argv[1])))
