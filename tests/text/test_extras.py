"""The hint for an extra works for every kind of installation; and the package's other name."""

import importlib.metadata
import json
import pickle
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

import producer
from producer.text import extras
from producer.text.extras import how_to_install

URL = "https://example.org/loghub-producer.git"


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
    monkeypatch: pytest.MonkeyPatch, told: dict[str, Any] | None, said: str
) -> None:
    """The hint has the origin of the installation, and builds without a compiler if it is not compiled."""

    class Distribution:
        def read_text(self, _name: str) -> str | None:
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


def test_loghub_is_producer_under_another_name() -> None:
    """``loghub`` and ``producer`` have the same objects and modules, whichever is imported first."""
    import loghub.errors
    import loghub.wire.schema
    from loghub.testing import RecordingSink

    import loghub

    assert loghub.Producer is producer.Producer
    assert loghub.errors is producer.model.errors
    assert sys.modules["loghub.wire.schema"] is sys.modules["producer.wire.schema"]
    assert producer.model.errors.__spec__ is not None
    assert producer.model.errors.__spec__.name == producer.model.errors.__name__ == "producer.model.errors"
    assert RecordingSink.__module__ == "producer.testing"
    assert pickle.loads(pickle.dumps(loghub.ProducerConfig())) == producer.ProducerConfig()
    assert loghub.__all__ == producer.__all__
    assert {"Producer", "errors"} <= set(dir(loghub))
    with pytest.raises(ImportError, match="cannot import name 'Prodcer' from 'loghub'"):
        exec("from loghub import Prodcer")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'loghub\.prodcer'"):
        exec("import loghub.prodcer")


def test_a_file_of_the_user_that_hides_the_package_is_named(tmp_path: Path) -> None:
    """An import error caused by a user's file named producer.py names the file."""
    program = tmp_path / "producer.py"
    program.write_text("from loghub import Producer\n")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"ImportError: the package producer, which loghub is another name of, is hidden by {program}"
    )
    assert "rename that file" in last
