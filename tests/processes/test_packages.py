"""The published wheel and source distribution work in environments without other packages."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.test_docs import PYTHON

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
    for name in (*TOP_FILES, "Makefile", "pyspark_loghub.py"):
        shutil.copyfile(ROOT / name, folder / name)
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    for name in ("loghub", "producer", "tests", "docs", "examples"):
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


SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def empty(folder: Path) -> Path:
    """Make an empty environment, which also finds this environment's packages after its own; return its Python."""
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    [own] = (folder / "env" / "lib").glob("python*/site-packages")
    # The dependencies are here already; the project itself is in a .pth file, which only real site folders read.
    (own / "dependencies.pth").write_text(run(sys.executable, "-c", SITE, cwd=folder).strip())
    return python


def pip(python: Path, command: str, *arguments: str | Path, **environment: str) -> None:
    """Run pip for an environment."""
    own = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    quick = ("--no-compile",) if command == "install" else ()
    run(*own, command, "--quiet", *quick, *arguments, cwd=python.parent, **environment)


@pytest.fixture(scope="module")
def wheel(packages: Path) -> Path:
    [wheel] = packages.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone into an environment; return its Python."""
    python = empty(tmp_path_factory.mktemp("installed"))
    pip(python, "install", "--no-deps", wheel)
    return python


def test_the_wheel_works_where_nothing_else_is(wheel: Path, installed: Path) -> None:
    """The wheel works alone, with the native modules if a compiler was there at the build."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    compiled = [name for name in names if name.endswith(".so")]
    twin, place = run(installed, "-c", PROGRAM, cwd=installed.parent).split()
    assert twin == ("native" if compiled else "pure")
    assert Path(place).is_relative_to(installed.parents[1])
    tops = {name.split("/")[0].split("-")[0] for name in names}
    assert tops == {"producer", "loghub", "pyspark_loghub.py", "loghub_producer"}
    assert {"producer/py.typed", "producer/ship/log4j2.properties", "producer/wire/_lines.pyx"} <= set(names)


def test_type_checkers_find_nothing_in_the_examples_and_documents(installed: Path, tmp_path: Path) -> None:
    """With the installed wheel, ``mypy --strict`` and pyright accept each example and each block of the documents, and
    find a misspelt option.
    """
    pytest.importorskip("pyright", reason="`make check` installs it: 240 MB")
    for block in PYTHON:
        (tmp_path / f"{re.sub('[^a-z0-9]+', '_', str(block).lower())}.py").write_text(block.text)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    # A checker that did not find this error would report the comment.
    wrong = "from loghub import ProducerConfig\nProducerConfig(lingerms=500)  # type: ignore[call-arg]\n"
    (tmp_path / "wrong.py").write_text(wrong)
    (tmp_path / "pyrightconfig.json").write_text('{"reportUnnecessaryTypeIgnoreComment": "error"}')
    # These libraries have no types.
    (tmp_path / "mypy.ini").write_text("[mypy-django.*,pyarrow.*]\nignore_missing_imports = True\n")
    run(sys.executable, "-m", "mypy", "--strict", "--python-executable", installed, ".", cwd=tmp_path)
    run(sys.executable, "-m", "pyright", "--pythonpath", installed, cwd=tmp_path)


def test_the_loghub_of_the_index_replaces_ours_until_a_reinstallation(
    wheel: Path, installed: Path, tmp_path: Path
) -> None:
    """Another project's ``loghub`` replaces ours if installed later, and leaves none if removed; ``producer`` works."""
    theirs, record = tmp_path / "loghub-0.5.1-py3-none-any.whl", "loghub-0.5.1.dist-info/RECORD"
    with zipfile.ZipFile(theirs, "w") as archive:
        archive.writestr("loghub/__init__.py", "changelogs = True\n")
        archive.writestr("loghub-0.5.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: loghub\nVersion: 0.5.1\n")
        archive.writestr(
            "loghub-0.5.1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(
            record, "loghub/__init__.py,,\nloghub-0.5.1.dist-info/METADATA,,\nloghub-0.5.1.dist-info/WHEEL,,\n"
        )
    pip(installed, "install", "--no-deps", theirs)
    run(installed, "-c", "from loghub import changelogs; from producer import Producer", cwd=tmp_path)
    pip(installed, "uninstall", "--yes", "loghub")
    gone = "import loghub, producer.testing; assert not hasattr(loghub, 'Producer'); producer.Producer"
    run(installed, "-c", gone, cwd=tmp_path)
    pip(installed, "install", "--no-deps", "--force-reinstall", wheel)
    run(installed, "-c", "from loghub import Producer; from loghub.testing import RecordingSink", cwd=tmp_path)


def test_the_source_distribution_works_without_a_compiler(packages: Path, tmp_path: Path) -> None:
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
    python = empty(tmp_path)
    pip(python, "install", "--no-deps", "--no-build-isolation", source, CC="/no/compiler")
    twin, place = run(python, "-c", PROGRAM, cwd=tmp_path).split()
    assert twin == "pure"
    assert Path(place).is_relative_to(tmp_path)


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
