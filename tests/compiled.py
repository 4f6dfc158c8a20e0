"""Compiles all test modules and what they import, once: ``python -m tests.compiled``.

In a fresh clone each process of tests would do that for itself, all at the same time, and so would the one under the
sanitizers: twenty seconds each. ``.ci/run`` calls it.
"""

import sys

import pytest


class _ModulesAlone:
    """A plugin of pytest: modules are imported, and none of their tests is made."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
        return []


def main(arguments: list[str]) -> int:
    """Import everything; what cannot be imported is an error."""
    code = pytest.main(["-q", "--collect-only", "-p", "no:xdist", *arguments], plugins=[_ModulesAlone()])
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
