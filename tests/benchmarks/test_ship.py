"""The benchmark of producer ship runs."""

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

#: A run of what everybody can do.
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


def test_ship_is_measured_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    """Each case has a line with its rate, and has been told of when it ended."""
    cases = ["text", "multiline", "gzip"]
    ship.main(["--megabytes=1", "--rounds=1", "--engines", "local", "--peers", "--case", *cases])
    printed = capsys.readouterr()
    lines = printed.out.splitlines()[: len(cases)]
    assert all(line.startswith(told) for line, told in zip(lines, printed.err.splitlines(), strict=True))
    assert [line.split()[:2] for line in lines] == [["local", name] for name in cases]
    assert all("MB/s" in line for line in lines)


def test_rates_ratios_cpu_seconds_and_the_time_of_a_cold_start_each_beside_its_goal() -> None:
    """Rates, ratios, CPU seconds and the time of a cold start, each beside its goal."""
    results = {
        ("spark", "text"): [Result(400.0, 4.0, 9.0)],
        ("one", "text"): [Result(400.0, 4.0, 9.0)],
        ("cluster", "text"): [Result(300.0, 4.0, 9.0)],
        ("spark", "gzip"): [Result(300.0, 9.0, 9.0)],
        ("local", "cold"): [Result(3.0, 99.0, 1.4)],
    }
    told = report(results, 200.0)
    assert " ".join(told[0].split()) == "spark text 400.0 MB/s 4.0 CPU s/GB 9.0 s goal 300 MB/s: met"
    assert told[len(results) :] == [
        "text, spark / twice one process: 0.50   goal 0.6: missed",
        "text, spark, CPU seconds a GB: 4.0   goal 5: met",
        "gzip, spark / gzip -dc: 1.50   goal 0.8: met",
        "text, cluster of 2 workers / local[2]: 0.75   goal 0.9: missed",
        "cold, local, the whole command: 1.40 s   goal 1.5: met",
    ]


def test_a_command_that_does_not_end_is_ended_at_its_limit() -> None:
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
            spent.look()
    assert 0.15 < spent.seconds < 2


@pytest.mark.timeout(600)  # the first one installs the peers, unless that was done before
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_ships_the_file_that_ours_ships(name: str, tmp_path: Path) -> None:
    """Each line of it, of which those that send have the server count the bytes; or it is said why it cannot."""
    reasons = install([name])
    if name in reasons:
        assert "was not found" in reasons[name] or "failed" in reasons[name]
        pytest.skip(reasons[name])
    file = ship.CASES["text"].write(tmp_path, 0)[0]
    with null_server() as port:
        result = PEERS[name].run("regex", sample_of(file, 1), port)
    assert min(result.rate, result.cpu, result.seconds) > 0


def test_as_much_as_its_share_to_a_line(tmp_path: Path) -> None:
    """As much as its share, to a line."""
    file = ship.CASES["text"].write(tmp_path, 0)[0]
    whole, part = file.read_bytes(), sample_of(file, 0.01)
    assert whole.startswith(part.path.read_bytes())
    assert part.path.read_bytes().count(b"\n") == part.lines
    assert whole[part.line_bytes - 1 : part.line_bytes] == b"\n"
    assert 0 <= len(whole) * 0.01 - part.line_bytes < 200


@pytest.mark.parametrize("case", ["apache", "regex"])
def test_a_loop_finds_the_fields_of_every_line(case: str, tmp_path: Path) -> None:
    """None is fast by not matching."""
    lines = ship.CASES["text"].write(tmp_path, 0)[0].read_text().splitlines()
    assert all(re.fullmatch(str(PATTERNS[case]), line) for line in lines)


def test_the_table_has_medians_goals_and_the_peers_left_out() -> None:
    """Medians with CPU seconds, but for a cluster; what misses its goal is bold; who is left out is said."""
    assert table(FOUND) == [
        "| MB/s (CPU s a GB) | text | gzip | 5 MB, cold: s |",
        "|---|---|---|---|",
        "| `ship`, Spark's `local[2,4]` | **250** (**6.0**) |  |  |",
        "| `ship`, Spark cluster, 2 workers | **240** |  |  |",
        "| `ship`, `local`, two processes | 400 (4.5) | **100** (9.0) | **1.6** |",
        "| a loop with `put_logs` | 2.5 (700) |  |  |",
        "| goal | ≥ 300 (≤ 5) | ≥ 160 | ≤ 1.5 |",
    ]
    told = document(FOUND).splitlines()
    assert "* Flume, taildir → memory → null: reads only is left out: `mvn` was not found" in told
    assert "* text, cluster of 2 workers / local[2]: 0.96   goal 0.9: met" in told
    assert told[-1] == "1000 MB a file, 3 rounds, two cores."


def test_kept_results_give_the_same_table_and_plot(tmp_path: Path) -> None:
    """Byte for byte, whatever was left out."""
    FOUND.keep(tmp_path / "kept" / "ship.json")
    again = load(tmp_path / "kept" / "ship.json")
    assert again == FOUND
    for name, found in (("1.svg", FOUND), ("2.svg", again)):
        draw(found, tmp_path / name)
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()


def test_the_cases_of_ship_are_cases_of_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By themselves, with the options of ship."""
    assert shipping(["--case", "ship", "--rounds", "1"]) == ["--rounds", "1"]
    assert shipping(["--rounds=1", "--case", "ship-text", "ship-json"]) == ["--rounds=1", "--case", "text", "json"]
    assert shipping(["--case", "ship", "java"]) is shipping(["--case", "java"]) is shipping([]) is None
    FOUND.keep(tmp_path / "ship.json")
    assert main(["--case", "ship", "--from", str(tmp_path / "ship.json")]) == 0
    assert "\n".join(table(FOUND)) in capsys.readouterr().out


def test_the_document_has_a_place_for_them() -> None:
    """The document has a place for them."""
    text = ship.DOCUMENT.read_text()
    assert "| goal |" in insert(text, "ship", document(FOUND))
