"""The benchmark of ``producer ship`` runs."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.benchmarks import ship
from tests.benchmarks.__main__ import main, shipping
from tests.benchmarks.cpu import CpuOfTree
from tests.benchmarks.report import insert
from tests.benchmarks.server import null_server
from tests.benchmarks.ship_peers import PATTERNS, PEERS, install, sample_of
from tests.benchmarks.ship_report import Measured, Result, document, draw, load, report, table

#: Results of every engine and of one peer.
FOUND = Measured(
    megabytes=1000,
    results={
        ("spark", "text"): [Result(200.0, 13.0, 9.0), Result(250.0, 6.0, 9.0), Result(310.0, 4.0, 9.0)],
        ("cluster", "text"): [Result(240.0, 1.0, 9.0)],
        ("local", "text"): [Result(400.0, 4.5, 3.0)],
        ("local", "gzip"): [Result(100.0, 9.0, 3.0)],
        ("local", "cold"): [Result(3.0, 99.0, 1.6)],
        ("put_logs", "text"): [Result(2.5, 700.0, 9.0)],
    },
    unzipped=[100.0, 200.0, 300.0],
    left_out={"flume": "`mvn` was not found"},
    machine={"CPU": "two cores"},
)


def test_each_case_has_a_line_with_its_rate_and_a_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Each case has a line with its rate on stdout, and a line on stderr when it ends."""
    cases = ["text", "multiline", "gzip"]
    ship.main(["--megabytes=1", "--rounds=1", "--engines", "local", "--peers", "--case", *cases])
    printed = capsys.readouterr()
    lines = printed.out.splitlines()[: len(cases)]
    assert all(line.startswith(early) for line, early in zip(lines, printed.err.splitlines(), strict=True))
    assert [line.split()[:2] for line in lines] == [["local", name] for name in cases]
    assert all("MB/s" in line for line in lines)


def test_the_report_shows_rates_ratios_cpu_seconds_and_a_cold_start_with_their_goals() -> None:
    """The report shows rates, ratios, CPU seconds and the time of a cold start with their goals."""
    results = {
        ("spark", "text"): [Result(400.0, 4.0, 9.0)],
        ("one", "text"): [Result(400.0, 4.0, 9.0)],
        ("cluster", "text"): [Result(300.0, 4.0, 9.0)],
        ("spark", "gzip"): [Result(300.0, 9.0, 9.0)],
        ("local", "cold"): [Result(3.0, 99.0, 1.4)],
    }
    lines = report(results, 200.0)
    assert " ".join(lines[0].split()) == "spark text 400.0 MB/s 4.0 CPU s/GB 9.0 s goal 300 MB/s: met"
    assert lines[len(results) :] == [
        "text, spark / twice one process: 0.50   goal 0.6: missed",
        "text, spark, CPU seconds a GB: 4.0   goal 5: met",
        "gzip, spark / gzip -dc: 1.50   goal 0.8: met",
        "text, cluster of 2 workers / local[2]: 0.75   goal 0.9: missed",
        "cold, local, the whole command: 1.40 s   goal 1.5: met",
    ]


def test_a_command_that_exceeds_its_limit_is_killed() -> None:
    """A command that exceeds its limit is killed, regardless of its output."""
    endless = "import time; print('x' * 1_000_000, flush=True); time.sleep(1000)"
    with (
        subprocess.Popen([sys.executable, "-c", endless], stdout=subprocess.PIPE, text=True) as command,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        ship._finish(command, CpuOfTree(command.pid), time.monotonic() + 0.1)
    assert command.returncode == -signal.SIGKILL


def test_cpu_of_unreaped_processes_such_as_sparks_python_workers_is_counted() -> None:
    """CPU of unreaped processes, such as Spark's Python workers, is counted."""
    spend = "import time\nwhile time.process_time() < 0.2: pass\nprint()"
    start = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", sys.argv[1]]).wait()
"""
    with subprocess.Popen([sys.executable, "-c", start, spend], stdout=subprocess.PIPE) as command:
        spent = CpuOfTree(command.pid)
        while command.poll() is None:
            spent.update()
    assert 0.15 < spent.seconds < 2


@pytest.mark.timeout(600)  # the first one installs the peers unless they are installed
@pytest.mark.parametrize("name", PEERS)
def test_each_peer_ships_every_line_or_gives_the_reason_why_it_cannot_run(name: str, tmp_path: Path) -> None:
    """Each peer ships every line of the file, or gives the reason why it cannot run."""
    reasons = install([name])
    if name in reasons:
        assert "was not found" in reasons[name] or "failed" in reasons[name]
        pytest.skip(reasons[name])
    file = ship.CASES["text"].write(tmp_path, 0)[0]
    with null_server() as port:
        result = PEERS[name].run("regex", sample_of(file, 1), port)
    assert min(result.rate, result.cpu, result.seconds) > 0


def test_a_sample_has_whole_lines_close_to_its_share_of_the_file(tmp_path: Path) -> None:
    """A sample has whole lines, as close to its share of the file as possible."""
    file = ship.CASES["text"].write(tmp_path, 0)[0]
    whole, part = file.read_bytes(), sample_of(file, 0.01)
    assert whole.startswith(part.path.read_bytes())
    assert part.path.read_bytes().count(b"\n") == part.lines
    assert whole[part.line_bytes - 1 : part.line_bytes] == b"\n"
    assert 0 <= len(whole) * 0.01 - part.line_bytes < 200


@pytest.mark.parametrize("case", ["apache", "regex"])
def test_the_patterns_of_the_loops_match_every_line(case: str, tmp_path: Path) -> None:
    """The patterns of the loops match every line, so no loop is fast by not matching."""
    lines = ship.CASES["text"].write(tmp_path, 0)[0].read_text().splitlines()
    assert all(re.fullmatch(str(PATTERNS[case]), line) for line in lines)


def test_the_table_has_medians_goals_and_the_peers_left_out() -> None:
    """The table has medians and goals in bold if missed, and the document names the peers left out."""
    assert table(FOUND) == [
        "| MB/s (CPU s a GB) | text | gzip | 5 MB, cold: s |",
        "|---|---|---|---|",
        "| `ship`, Spark's `local[2,4]` | **250** (**6.0**) |  |  |",
        "| `ship`, Spark cluster, 2 workers | **240** |  |  |",
        "| `ship`, `local`, two processes | 400 (4.5) | **100** (9.0) | **1.6** |",
        "| a loop with `put_logs` | 2.5 (700) |  |  |",
        "| goal | ≥ 300 (≤ 5) | ≥ 160 | ≤ 1.5 |",
    ]
    lines = document(FOUND).splitlines()
    assert "* Flume, taildir → memory → null: reads only is left out: `mvn` was not found" in lines
    assert "* text, cluster of 2 workers / local[2]: 0.96   goal 0.9: met" in lines
    assert lines[-1] == "1000 MB a file, 3 rounds, two cores."


def test_stored_results_give_the_same_table_and_plot(tmp_path: Path) -> None:
    """Stored results give the same table and, byte for byte, the same plot."""
    FOUND.keep(tmp_path / "kept" / "ship.json")
    again = load(tmp_path / "kept" / "ship.json")
    assert again == FOUND
    for name, found in (("1.svg", FOUND), ("2.svg", again)):
        draw(found, tmp_path / name)
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()


def test_the_cases_of_ship_run_without_other_cases_and_take_its_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cases of ``ship`` run only without other cases, and take the options of ``ship``."""
    assert shipping(["--case", "ship", "--rounds", "1"]) == ["--rounds", "1"]
    assert shipping(["--rounds=1", "--case", "ship-text", "ship-json"]) == ["--rounds=1", "--case", "text", "json"]
    assert shipping(["--case", "ship", "java"]) is shipping(["--case", "java"]) is shipping([]) is None
    FOUND.keep(tmp_path / "ship.json")
    assert main(["--case", "ship", "--from", str(tmp_path / "ship.json")]) == 0
    assert "\n".join(table(FOUND)) in capsys.readouterr().out


def test_the_document_has_the_markers_of_the_table() -> None:
    """The document has the markers of the table."""
    text = ship.DOCUMENT.read_text()
    assert "| goal |" in insert(text, "ship", document(FOUND))
