"""The published wheel and source distribution work in environments without other packages."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

# Compilation is slow on a busy machine.
pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parents[2]
TOP_FILES = (
    "setup.py",
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
)
PROGRAM = """
import sys
from producer import Producer
from producer.testing import RecordingSink
sink = RecordingSink()
with Producer(sink=sink) as producer:
    stream = producer.stream("project", "logstore")
    futures = [stream.send({"n": n}) for n in range(3)] + stream.send_lines(b"one\\ntwo\\n")
    producer.flush()
    assert all(future.result().successful for future in futures)
assert len(sink.records()) == 5
print(producer.stats().twin, __import__("producer").__file__)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_source(folder: Path) -> Path:
    """Copy what is published to a folder, with the times of now."""
    folder.mkdir()
    for name in (*TOP_FILES, "Makefile", "loghub.py", "pyspark_loghub.py"):
        shutil.copyfile(ROOT / name, folder / name)
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    for name in ("producer", "tests", "docs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored, copy_function=shutil.copyfile)
    return folder


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and the wheel from it; return their folder."""
    pytest.importorskip("Cython")
    folder = tmp_path_factory.mktemp("packages")
    source = copy_source(tmp_path_factory.mktemp("source") / "one")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, cwd=source, CFLAGS="-O0")
    return folder


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Make an environment without packages that finds those of this one after its own; return its Python."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    [own] = (tmp_path / "env" / "lib").glob("python*/site-packages")
    # The dependencies are here already; the project itself is in a .pth file, which only real site folders read.
    (own / "dependencies.pth").write_text(run(sys.executable, "-c", SITE, cwd=tmp_path).strip())
    return python


SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def install(python: Path, package: Path, **environment: str) -> str:
    """Install a package alone and run a program with it; return the output."""
    folder = package.parent
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-build-isolation", package, cwd=folder, **environment)
    return run(python, "-c", PROGRAM, cwd=folder)


def test_the_wheel_works_where_nothing_else_is(packages: Path, empty: Path) -> None:
    """The wheel works alone, with the native modules if a compiler was there at the build."""
    [wheel] = packages.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    compiled = [name for name in names if name.endswith(".so")]
    twin, place = install(empty, wheel).split()
    assert twin == ("native" if compiled else "pure")
    assert Path(place).is_relative_to(empty.parents[1])
    tops = {name.split("/")[0].split("-")[0] for name in names}
    assert tops == {"producer", "loghub.py", "pyspark_loghub.py", "loghub_producer"}
    assert {"producer/py.typed", "producer/ship/log4j2.properties", "producer/wire/_lines.pyx"} <= set(names)


def test_the_source_distribution_works_without_a_compiler(packages: Path, empty: Path) -> None:
    """The source distribution works in pure Python; it contains tests and documents."""
    [source] = packages.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "tests/conftest.py",
        "docs/application/bulk.md",
        "Makefile",
        "producer/wire/_bytes.pxd",
        "setup.py",
    } <= names
    assert [name for name in names if name.endswith((".so", ".c", ".pyc"))] == []
    twin, place = install(empty, source, CC="/no/compiler").split()
    assert twin == "pure"
    assert Path(place).is_relative_to(empty.parents[1])


def test_the_source_distribution_is_reproducible(packages: Path, tmp_path: Path) -> None:
    """Another copy of the files, made later by another umask, gives a source distribution of the same bytes."""
    [source] = packages.glob("*.tar.gz")
    before = os.umask(0o077)
    try:
        copy = copy_source(tmp_path / "two")
        run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", tmp_path / "again", cwd=copy)
    finally:
        os.umask(before)
    assert (tmp_path / "again" / source.name).read_bytes() == source.read_bytes()
