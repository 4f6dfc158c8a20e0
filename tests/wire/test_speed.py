"""Native encoders are used if available, else the pure ones, and the choice is visible."""

import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from producer import Producer
from producer.ship import session
from producer.testing import RecordingSink
from producer.wire import speed
from tests.wire.twins import BUILT, native

ROOT = Path(__file__).resolve().parents[2]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
TWIN = "from producer.wire import speed; print(speed.TWIN, speed.encode_lines.__module__)"


def run(*arguments: str, path: str = str(ROOT), **environment: str) -> str:
    """Return the output of Python with another entry on its path."""
    known = {name: value for name, value in os.environ.items() if name != "PRODUCER_PURE"}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        env=known | {"PYTHONPATH": path} | environment,
        cwd="/",
    )
    return done.stdout.strip() + done.stderr.strip()


@native
def test_compiled_modules_are_used_by_default() -> None:
    """Compiled modules are used by default."""
    assert run("-c", TWIN) == "native producer.wire._lines"
    assert run("-c", TWIN, PRODUCER_PURE="0") == "native producer.wire._lines"


def test_the_pure_twins_can_be_forced() -> None:
    """``PRODUCER_PURE=1`` selects the pure implementations."""
    assert run("-c", TWIN, PRODUCER_PURE="1") == "pure producer.wire.lines"


def test_without_a_global_lock_the_compiled_twins_stay_away() -> None:
    """Without a GIL the native implementations are not used."""
    assert run("-c", f"import sys; sys._is_gil_enabled = lambda: False; {TWIN}") == "pure producer.wire.lines"


@native
def test_compiled_modules_are_loaded_from_a_zip_file_as_for_sparks_workers_and_leave_no_file(tmp_path: Path) -> None:
    """Compiled modules are loaded from a zip file, as for Spark's workers, and leave no file."""
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "producer").rglob(f"*{SUFFIX}")]
    names = [file.removesuffix(SUFFIX).replace(os.sep, ".") for file in files]
    use = f"{TWIN}; import importlib; print([importlib.import_module(name).__name__ for name in {names}])"
    path = session.package_zip()
    assert run("-c", use, path=path, TMPDIR=str(tmp_path)) == f"native producer.wire._lines\n{names}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("other", ["another Python", "another machine", "no place for files"])
def test_in_a_zip_file_that_does_not_fit_the_pure_twins_work(other: str, tmp_path: Path) -> None:
    """A zip file of another platform uses the pure implementations without a message."""
    archive = tmp_path / "producer.zip"
    with ZipFile(session.package_zip()) as made, ZipFile(archive, "w") as changed:
        for name in made.namelist():
            content = made.read(name)
            if name.endswith(SUFFIX) and other == "another machine":
                content = b"\x7fELF of another machine"
            changed.writestr(name.replace("-3", "-2") if other == "another Python" else name, content)
    folder = "/proc/none" if other == "no place for files" else str(tmp_path)
    use = f"import tempfile; tempfile.tempdir = {folder!r}; {TWIN}; print(speed.__file__)"
    assert run("-c", use, path=str(archive)) == f"pure producer.wire.lines\n{archive}/producer/wire/speed.pyc"


def test_the_version_and_the_statistics_say_which_twin_it_is() -> None:
    """The version and the statistics name the implementation, before and after the first record."""
    assert run("-m", "producer", "--version").endswith(f" ({'native' if BUILT else 'pure'} encoders)")
    assert run("-m", "producer", "--version", PRODUCER_PURE="1").endswith(" (pure encoders)")
    with Producer(sink=RecordingSink()) as producer:
        assert producer.stats().twin == speed.TWIN
        producer.send("p", "l", {"a": "b"})
        assert producer.stats().twin == speed.TWIN


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    pytest.importorskip("Cython")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "pyspark_loghub.py"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        ROOT / "producer", tmp_path / "producer", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    )
    return tmp_path


def build(sources: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=sources,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_without_a_compiler_the_build_goes_through(sources: Path) -> None:
    """Without a compiler the build succeeds with one line per module, unless native code is required."""
    done = build(sources, CC="/no/compiler", PRODUCER_BUILD="")
    assert done.returncode == 0, done.stderr
    assert "producer.wire._lines was not compiled, the pure Python twin is used: " in done.stderr
    assert list(sources.rglob("*.so")) == []
    assert build(sources, CC="/no/compiler", PRODUCER_BUILD="native").returncode != 0


@pytest.mark.parametrize("mode", ["", "native", "checked"])
def test_on_a_free_threaded_build_nothing_is_compiled(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a free-threaded build nothing is compiled, even if required."""
    pytest.importorskip("setuptools")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PRODUCER_BUILD", mode)
    real = sysconfig.get_config_var
    for disabled in (1, 0, None):
        told = {"Py_GIL_DISABLED": disabled}
        monkeypatch.setattr(sysconfig, "get_config_var", lambda name, told=told: told.get(name) or real(name))
        built = [module.name for module in _setup()["modules"]()]
        assert ("producer.pipeline.batching._open_records" in built) == (not disabled)
        assert ("producer.wire._log_group" in built) == (not disabled)
        assert bool(built) == (not disabled)


def _setup() -> dict[str, Any]:
    """Return the definitions of setup.py, without a build."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("setuptools.setup", lambda **_: None)
        return runpy.run_path(str(ROOT / "setup.py"))


def test_producer_build_pure_compiles_nothing(sources: Path) -> None:
    """``PRODUCER_BUILD=pure`` compiles nothing."""
    done = build(sources, CC="/no/compiler", PRODUCER_BUILD="pure")
    assert (done.returncode, list(sources.rglob("*.so"))) == (0, [])
