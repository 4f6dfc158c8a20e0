"""The documents are true: their code runs, their tables match the code, and their links resolve."""

import ast
import contextlib
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import producer
from docs import generated
from producer.agent.monitoring import server as monitoring
from producer.cli import serve
from producer.model.config import producer_options
from producer.server.limits import Limits
from producer.spark.options import READ_OPTIONS, TARGET_OPTIONS, WRITE_OPTIONS

from .test_face import FACES

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")

#: Words of README.md and docs/ together.
MOST_WORDS = 22_000
#: Typical searches, by the page that is to be found.
LOOKED_FOR = {
    "start/agent.html": ("quickstart", "docker", "systemd", "kubernetes"),
    "start/spark.html": ("quickstart", "DATA_SOURCE_NOT_FOUND"),
    "index.html": ("quickstart", "sls", "mock", "pypi"),
    "concepts/terms.html": ("logstore", "shard", "offset", "checkpoint"),
    "concepts/backpressure.html": ("backpressure", "memory", "throttled"),
    "application/configure.html": ("backpressure", "proxy", "memory"),
    "application/credentials.html": ("ram", "sts", "policy"),
    "concepts/delivery.html": ("sigterm", "atexit", "fork"),
    "operations/errors.html": ("throttling", "timeout", "quota"),
    "agent/sources/taildir.html": ("logrotate", "copytruncate", "containers"),
    "application/frameworks.html": ("serverless", "gunicorn", "celery", "jupyter"),
    "cli/ship.html": ("stdin", "gzip"),
    "operations/troubleshooting.html": ("duplicates", "certificate_verify_failed"),
    "project/benchmarks.html": ("performance",),
    "concepts/channels.html": ("encryption", "fsync"),
}

# Commands that a shell block may name: their targets are only looked up, nothing is installed.
SHELL_PREFIX = f"""
set -euo pipefail
make() {{ command make -C '{ROOT}' -n "$@" > /dev/null; }}
pip() {{ :; }}
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: its place, language and text."""

    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks() -> Iterator[Block]:
    """Yield every fenced block of every document."""
    for path in DOCUMENTS:
        text = path.read_text()
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield Block(str(path.relative_to(ROOT)), line, match[1], match[2])


BLOCKS = list(blocks())
PYTHON = [block for block in BLOCKS if block.language == "python"]
SPARK = [block for block in PYTHON if re.search(r"\bsession\(", block.text)]
#: They import much and leave no state: one process runs all of them.
TOGETHER = [
    block for block in PYTHON if block.document in ("docs/application/frameworks.md", "docs/application/logging.md")
]

#: Seconds for several blocks in one process on a busy machine, to end a hang.
TOGETHER_SECONDS = 500
#: Runs programs one after the other in one process, whose JVM or imports take longer than they do, and writes what
#: became of each. Each begins without a session, and without handlers of logging.
RUNNER = """
import json, logging, pathlib, runpy, sys, traceback
found = {}
for path in sys.argv[2:]:
    try:
        runpy.run_path(path, run_name="__main__")
        found[path] = ""
    except BaseException:
        found[path] = traceback.format_exc()
    spark = sys.modules.get("pyspark.sql")
    session = spark and spark.SparkSession.getActiveSession()
    if session is not None:
        session.stop()
    logging.getLogger().handlers.clear()
pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
"""


def run(command: list[str], cwd: Path, timeout: float = 100, *, activated: bool = True) -> None:
    """Run a command to its end, with this environment's programs if ``activated``; its background jobs end with it."""
    own = str(Path(sys.executable).parent)
    path = [part for part in os.environ["PATH"].split(os.pathsep) if part != own]
    environment = os.environ | {"PATH": os.pathsep.join([own, *path] if activated else path)}
    environment.pop("COVERAGE_PROCESS_CONFIG", None)  # coverage would slow Spark's blocks by half
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(timeout=timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        assert status == 0, output.read()


@pytest.fixture(autouse=True)
def _no_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep nothing in the configuration of the user who runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.parametrize("block", [block for block in PYTHON if block not in (*SPARK, *TOGETHER)], ids=str)
def test_every_python_block_runs(block: Block, tmp_path: Path) -> None:
    """A Python block is an independent program, which ends without an error."""
    script = tmp_path / "block.py"
    script.write_text(block.text)
    run([sys.executable, "-W", "error::SyntaxWarning", str(script)], tmp_path)


@pytest.fixture(scope="module")
def ran(quick_java: str, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """Run the blocks that need Spark; return the traceback of each, by script, or an empty text."""
    # As for a user who starts an environment's Python by its path: the first one starts Spark.
    return _run_all(SPARK, tmp_path_factory.mktemp("spark"), activated=False)


@pytest.fixture(scope="module")
def ran_together(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """Run the blocks that need no process of their own; return the traceback of each, or an empty text."""
    return _run_all(TOGETHER, tmp_path_factory.mktemp("together"))


def _run_all(blocks: list[Block], folder: Path, *, activated: bool = True) -> dict[Path, str]:
    for block in blocks:
        _script(folder, block).write_text(block.text)
    scripts = [str(_script(folder, block)) for block in blocks]
    command = [sys.executable, "-W", "error::SyntaxWarning", "-c", RUNNER, str(folder / "found"), *scripts]
    run(command, folder, timeout=TOGETHER_SECONDS, activated=activated)
    return {Path(path): found for path, found in json.loads((folder / "found").read_text()).items()}


def _script(folder: Path, block: Block) -> Path:
    return folder / f"{block.document.replace('/', '-')}-{block.line}.py"


@pytest.mark.parametrize("block", SPARK, ids=str)
def test_every_block_that_needs_spark_runs(block: Block, ran: dict[Path, str]) -> None:
    """A block is a program with its own session, which ends without an error; they share a JVM."""
    [found] = [found for path, found in ran.items() if path.name == _script(path.parent, block).name]
    assert found == ""


@pytest.mark.parametrize("block", TOGETHER, ids=str)
def test_every_block_of_an_integration_or_recipe_runs(block: Block, ran_together: dict[Path, str]) -> None:
    """A block is a program that ends without an error; one process runs them one after the other."""
    [found] = [found for path, found in ran_together.items() if path.name == _script(path.parent, block).name]
    assert found == ""


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "bash"], ids=str)
def test_every_shell_block_runs(block: Block, request: pytest.FixtureRequest) -> None:
    """The commands exist and succeed; for ``make`` only the targets are checked."""
    if "producer ship" in block.text:
        request.getfixturevalue("quick_java")
    with socket.create_server(("127.0.0.1", 0)) as free:  # the documented port may be in use
        port = free.getsockname()[1]
    run(["bash", "-c", SHELL_PREFIX + block.text.replace("9170", str(port))], ROOT)


def test_every_block_names_its_language_so_that_it_is_run_or_known_as_mere_text() -> None:
    """Every block names its language, so that it is run or known as mere text."""
    assert {block.language for block in BLOCKS} <= {"python", "bash", "text", "ini", "toml", "json", "yaml"}
    assert [str(block) for block in BLOCKS if not block.language] == []


@pytest.mark.parametrize("path", [*DOCUMENTS, *sorted((ROOT / "tests").rglob("*.md"))], ids=lambda path: path.name)
def test_every_link_leads_to_a_file(path: Path) -> None:
    """Relative links name files of the project."""
    links = [link for link in LINK.findall(FENCE.sub("", path.read_text())) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_table_is_torn(path: Path) -> None:
    """A row of a table has its header above it: after an empty line it would be shown as text with bars."""
    torn = re.findall(r"^\|.*\n\n(\|.*)\n(?!\|[ :-]*-)", path.read_text(), re.MULTILINE)
    assert not torn


def test_only_the_sites_page_of_options_tells_the_default_of_an_option_of_the_producer_or_of_spark() -> None:
    """Only the site's page of options tells the default of an option of the producer or of Spark."""
    names = [*producer_options(), *TARGET_OPTIONS, *WRITE_OPTIONS, *READ_OPTIONS]
    row = re.compile(rf"^\| `(?:{'|'.join(map(re.escape, names))})` \| (?:`[^`]*`|number of CPUs) \|.*$", re.MULTILINE)
    told = {
        path.relative_to(ROOT).as_posix(): row.findall(generated.without_tables(path.read_text())) for path in DOCUMENTS
    }
    assert [page for page, rows in told.items() if rows] == []


@pytest.mark.parametrize("page", generated.PAGES, ids=lambda page: page.name)
def test_the_pages_have_every_option_with_its_default_rule_and_meaning_docs_generated_py_writes_them(
    page: Path,
) -> None:
    """The pages have every option with its default, rule and meaning; ``docs/generated.py`` writes them."""
    assert page.read_text() == generated.filled(page.read_text()), "run: python docs/generated.py"


def test_security_tells_the_limits_of_each_listener() -> None:
    """``SECURITY.md`` has the limits of the embedded LogHub and of the monitoring as the code has them."""
    limits, text = Limits(), (ROOT / "SECURITY.md").read_text()
    assert (
        f"{limits.connections} connections; {limits.receive_seconds:g} s for a request; {limits.raw_bytes >> 20} MiB a"
        f" LogGroup, decompressed; {limits.held_bytes >> 20} MiB of bodies in memory"
    ) in text
    assert f"port {serve.DEFAULT_PORT} (`producer serve`)" in text
    most, size, patience = monitoring._MOST_CONNECTIONS, monitoring._MOST_BYTES >> 10, monitoring._PATIENCE
    assert (
        f"{most} connections, of which a new one replaces the oldest; {size} KiB and {patience:g} s a request" in text
    )
    assert f"`monitoring = {monitoring.DEFAULT_PORT}`" in text


def test_the_documents_do_not_grow() -> None:
    """The English pages stay below a number of words: new text needs cuts elsewhere."""
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "zh")]
    assert sum(len(generated.without_tables(page.read_text()).split()) for page in pages) < MOST_WORDS


def test_the_documents_import_by_the_first_name() -> None:
    """Documents import ``loghub``: a reader's own file is more often called ``producer.py``."""
    told = {page: re.findall(r"^ *(?:from|import) producer\b.*", page.read_text(), re.MULTILINE) for page in DOCUMENTS}
    assert {page.name: lines for page, lines in told.items() if lines} == {}


def test_each_folders_init_py_has_a_docstring() -> None:
    """Each folder's ``__init__.py`` has a docstring, which ``docs/project/architecture.md`` relies on."""
    folders = sorted((ROOT / "producer").rglob("__init__.py"))
    assert len(folders) > 40
    assert [str(path) for path in folders if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_all_is_sorted_complete_and_importable() -> None:
    """``__all__`` is sorted, complete and importable."""
    assert sorted(producer.__all__) == producer.__all__ or sorted(producer.__all__, key=str.lower)
    public = {
        name
        for name, value in vars(producer).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("producer.")
    }
    assert public - {"Callback"} <= set(producer.__all__)
    assert all(hasattr(producer, name) for name in producer.__all__)


def test_each_name_in_all_of_a_public_module_is_on_one_page_of_the_reference() -> None:
    """Each name in ``__all__`` of a public module is on one page of the reference, and no other name is."""
    exported = {
        id(value): f"{name} of {module.__name__}"
        for module in map(importlib.import_module, FACES)
        for name in module.__all__
        if name != "__version__" and (value := getattr(module, name)) is not None
    }
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    documented = [name.rpartition(".") for name in re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE)]
    found = [id(getattr(importlib.import_module(module), name)) for module, _, name in documented]
    assert [name for key, name in exported.items() if key not in found] == []
    assert len(found) == len(set(found)) == len(exported)


def test_every_threads_name_is_documented() -> None:
    """``docs/project/architecture.md`` lists the threads that a producer may start."""
    text = (ROOT / "docs/project/architecture.md").read_text()
    for part in ("mover", "io-N", "success", "failure", "credentials", "feeder", "acks", "asend-N", "deadline"):
        assert f"`<producer>-{part}" in text


def test_a_broken_link_fails_the_build_of_the_site(tmp_path: Path) -> None:
    """The strict build fails on a link to a missing page or heading, and names it."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[no page](missing.md), [no heading](index.md#missing)\n")
    config = "docs_dir: docs\nhooks: []\nplugins: []\nextra_css: []\nnav: [index.md]\n"
    (tmp_path / "mkdocs.yml").write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\n{config}")
    build = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "mkdocs build" in line).split(
        "mkdocs "
    )[1]
    command = [sys.executable, "-m", "mkdocs", *build.split()]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert built.returncode != 0
    assert "missing.md" in built.stderr
    assert "#missing" in built.stderr


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """The site builds without a warning, and is complete.

    Every page is in the navigation, every link and name resolves, also from a folder, and nothing is loaded from other
    sites. The pages of options have tables, the reference is plain, and the search finds typical words.
    """
    run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)], ROOT)
    page = (tmp_path / "index.html").read_text()
    assert "Delivery guarantees" in page
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?://", page)
    reference = (tmp_path / "reference" / "options.html").read_text()
    assert reference.count("<td><code>linger_ms</code></td>") == 1
    assert "skipToEnd" in (tmp_path / "agent" / "sources" / "taildir.html").read_text()
    assert "<!--" not in reference
    index = json.loads((tmp_path / "search" / "search_index.json").read_text())
    for found, words in LOOKED_FOR.items():
        text = " ".join(
            each["title"] + " " + each["text"] for each in index["docs"] if each["location"].startswith(found)
        )
        assert set(map(str.lower, words)) <= set(re.findall(r"\w+", text.lower())), found
    start = (tmp_path / "start" / "application.html").read_text()
    assert 'href="../application/frameworks.html"' in start
    api = "".join(page.read_text() for page in (tmp_path / "reference").glob("*.html"))
    assert not re.findall(r":\w+:<code>", api)
    assert "__new__" not in api
