from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path

import pytest

from producer.agent.config import units
from producer.agent.config.units import UNITS, unit
from producer.cli import main
from tests.programs import need


def test_each_unit_runs_the_agent_with_the_file_that_was_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Each unit has the configuration's path, and no brace of its template is left."""
    for kind in UNITS:
        assert main(["agent", "unit", kind, "--config", "/srv/web.toml"]) == 0
        text = capsys.readouterr().out
        assert "/srv/web.toml" in text
        assert text.count("{") == text.count("{}")


def test_systemd_takes_its_unit(tmp_path: Path) -> None:
    """``systemd-analyze verify`` accepts the unit, where it exists; its sections and keys are checked everywhere."""
    path = tmp_path / "loghub-agent.service"
    path.write_text(unit("systemd"))
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    assert parser["Service"]["Type"] == "notify"
    started = parser["Service"]["ExecStart"]
    assert started.endswith("producer agent --config /etc/loghub-agent/agent.toml --state /var/lib/loghub-agent")
    need("systemd-analyze")
    command = ["systemd-analyze", "verify", path]
    verified = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_a_unit_keeps_the_files_own_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A service uses, and may write to, the file's own state directory, and does not restart for an invalid
    configuration.
    """
    path = tmp_path / "agent.toml"
    path.write_text('[agent]\nstate = "kept"\n')
    assert main(["agent", "unit", "systemd", "--config", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (started,) = [line for line in lines if line.startswith("ExecStart=")]
    assert started.endswith(f"producer agent --config {path}")
    assert f"ReadWritePaths=-/var/lib/loghub-agent {tmp_path}/kept" in lines
    assert "RestartPreventExitStatus=2" in lines


def read_yaml(text: str) -> object:
    """Parse the YAML of these files: maps and lists by indentation, and plain scalars."""
    lines = [
        (len(line) - len(line.lstrip()), line.strip())
        for line in text.splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    value, end = _block(lines, 0)
    assert end == len(lines), lines[end]
    return value


def _block(lines: list[tuple[int, str]], at: int) -> tuple[object, int]:
    indent = lines[at][0]
    found: dict[str, object] = {}
    items: list[object] = []
    while at < len(lines) and lines[at][0] == indent:
        text = lines[at][1]
        if text.startswith("- "):
            lines[at] = (indent + 2, text[2:])
            item, at = _block(lines, at)
            items.append(item)
            continue
        match = re.fullmatch(r"([\w.\-/]+):(?: (.+))?", text)
        assert match, text
        assert match[1] not in found
        at += 1
        if match[2] is not None:
            found[match[1]] = match[2].strip('"')
        else:
            assert lines[at][0] > indent, text
            found[match[1]], at = _block(lines, at)
    assert at == len(lines) or lines[at][0] < indent, lines[at]
    assert not (found and items)
    return (items or found), at


def test_kubernetes_gets_one_agent_a_node() -> None:
    """The DaemonSet's mounts have volumes, its labels match, and its probes use the monitoring's port."""
    document = read_yaml(unit("kubernetes"))
    assert isinstance(document, dict)
    spec = document["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert (document["kind"], document["apiVersion"]) == ("DaemonSet", "apps/v1")
    assert document["spec"]["selector"]["matchLabels"] == {"app": "loghub-agent"}
    assert document["spec"]["template"]["metadata"]["labels"] == {"app": "loghub-agent"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    assert container["ports"] == [{"name": "monitoring", "containerPort": "9180"}]
    paths = {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    assert paths == {"/health/live", "/health/ready"}


def test_a_relative_path_of_the_configuration_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A relative path becomes absolute for systemd, and a path in the image for containers."""
    monkeypatch.chdir(tmp_path)
    for kind, expected in (
        ("systemd", f"--config {tmp_path}/web.toml"),
        ("container", "COPY web.toml /etc/loghub-agent/web.toml"),
        ("kubernetes", "mountPath: /etc/loghub-agent\n"),
    ):
        assert main(["agent", "unit", kind, "--config", "web.toml"]) == 0
        assert expected in capsys.readouterr().out


def test_paths_below_tmp_of_the_configuration_the_state_and_the_virtual_environment_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths below /tmp of the configuration, the state and the virtual environment are reported for systemd."""
    monkeypatch.setattr(units, "_PRIVATE", (f"{tmp_path}/",))
    monkeypatch.setattr(units, "_command", lambda: f"{tmp_path}/venv/bin/producer")
    path = tmp_path / "agent.toml"
    path.write_text('[agent]\nstate = "kept"\n')
    assert main(["agent", "unit", "systemd", "--config", str(path)]) == 0
    said = capsys.readouterr().err
    for hidden in (path, tmp_path / "venv/bin/producer", tmp_path / "kept"):
        assert f"producer agent: {hidden} is in a directory of temporary files" in said
    assert main(["agent", "unit", "container", "--config", str(path)]) == 0
    assert capsys.readouterr().err == ""


def test_a_service_is_given_more_time_to_end_than_its_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A service's stop timeout is 30 seconds more than the agent's."""
    path = tmp_path / "agent.toml"
    for written, seconds in (("", 60), ("stop_timeout = 90.5\n", 121)):
        path.write_text(f"[agent]\n{written}")
        for kind, given in (
            ("systemd", f"TimeoutStopSec={seconds}\n"),
            ("kubernetes", f"terminationGracePeriodSeconds: {seconds}\n"),
            ("container", f"--stop-timeout {seconds} "),
        ):
            assert main(["agent", "unit", kind, "--config", str(path)]) == 0
            assert given in capsys.readouterr().out


def test_the_container_installs_the_extras_that_its_configuration_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image has the extras of components and options, and the programs; its head explains secrets and ports."""
    path = tmp_path / "agent.toml"
    path.write_text("""
[sources.fluent]
type = "forward"
channels = ["c"]
[sources.web]
type = "otlp"
channels = ["c"]
[sources.journal]
type = "journald"
channels = ["c"]
[channels.c]
type = "file"
key_file = "keys.json"
[sinks.k]
type = "objects"
channel = "c"
path = "s3://bucket/logs"
format = "parquet"
[sinks.topic]
type = "kafka"
channel = "c"
[sinks.old]
type = "thrift"
channel = "c"
""")
    assert main(["agent", "unit", "container", "--config", str(path)]) == 0
    text = capsys.readouterr().out
    assert "\nARG EXTRAS=agent,arrow,encryption,forward,kafka,otlp,s3,thrift\n" in text
    assert '\nARG PACKAGES="systemd"\n' in text
    assert all(said in text for said in ("--env-file", 'bind = "0.0.0.0"', "-p 5140:5140"))
