"""The hint for an extra works for every kind of installation."""

import importlib.metadata
import json
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

import producer
from producer.text import extras
from producer.text.extras import how_to_install

URL = "https://example.org/loghub-producer.git"


@pytest.mark.parametrize(("installer", "program"), [("pip", "pip"), ("poetry", "pip"), ("uv", "uv pip")])
@pytest.mark.parametrize(
    ("told", "said"),
    [
        (None, "pip install 'loghub-producer[spark]'"),
        ({"url": URL, "vcs_info": {"vcs": "git"}}, f"pip install 'loghub-producer[spark] @ git+{URL}'"),
        ({"url": "file:///src/a%20clone", "dir_info": {"editable": True}}, "pip install -e '/src/a clone[spark]'"),
        ({"url": "file:///src/clone", "dir_info": {}}, "pip install '/src/clone[spark]'"),
        ({"url": "file:///dist/x.whl", "archive_info": {}}, "pip install '/dist/x.whl[spark]'"),
    ],
)
def test_the_hint_has_the_origin_of_the_installation(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, Any] | None, said: str, installer: str, program: str
) -> None:
    """The hint has the installer and the origin of the installation, and builds without a compiler if it is not
    compiled.
    """
    said = said.replace("pip", program, 1)

    class Distribution:
        def read_text(self, name: str) -> str | None:
            if name == "INSTALLER":
                return f"{installer}\n"
            return None if told is None else json.dumps(told)

    monkeypatch.setattr(importlib.metadata, "distribution", lambda _name: Distribution())
    monkeypatch.setattr(extras, "_is_compiled", lambda: True)
    assert how_to_install("spark") == said
    monkeypatch.setattr(extras, "_is_compiled", lambda: False)
    built = told is not None and "archive_info" not in told
    assert how_to_install("spark") == ("PRODUCER_BUILD=pure " if built else "") + said


def test_the_compiled_state_is_found_by_the_modules_whatever_producer_pure_says() -> None:
    """The compiled state is found by the modules, whatever ``PRODUCER_PURE`` says."""
    wire = Path(producer.__file__).parent / "wire"
    assert extras._is_compiled() == any((wire / f"_lines{end}").exists() for end in EXTENSION_SUFFIXES)


def test_without_an_installation_the_hint_speaks_of_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an installation the hint is for a clone."""

    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    assert how_to_install("spark") == "pip install '.[spark]' in a clone"
