"""Compile all test modules and their imports, once: ``python -m tests.compiled``.

In a fresh clone each test process would compile them, all at the same time, and so would the one under the sanitizers:
twenty seconds each. ``.ci/run`` calls it.
"""

import sys

import pytest


class _ModulesAlone:
    """A pytest plugin that imports modules and makes none of their tests."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
        return []


def main(arguments: list[str]) -> int:
    """Import everything; return an error if a module cannot be imported."""
    code = pytest.main(["-q", "--collect-only", "-p", "no:xdist", *arguments], plugins=[_ModulesAlone()])
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
