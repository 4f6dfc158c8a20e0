"""The files in examples/deploy work with this version: container files, manifests, alerts and dashboards."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import trustme
import yaml

from producer import Producer
from producer.agent import Agent
from producer.agent.config import parse_toml
from producer.agent.config.units import unit
from producer.agent.monitoring.figures import figures
from producer.agent.monitoring.formats import prometheus
from producer.integrations.prometheus import LogHubCollector
from producer.testing import RecordingSink
from producer.wire.openmetrics import answer_scrape
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "examples/deploy"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
METRIC = re.compile(r"\bloghub_(?:agent|producer)_\w+")
AGENT = """
[agent]
state = "{0}/state"
[sources.files]
type = "taildir"
paths = ["{0}/*.log"]
channels = ["queue"]
[sources.lines]
type = "netcat"
port = 0
certificate = "{0}/server.pem"
channels = ["queue"]
[channels.queue]
type = "memory"
[sinks.kept]
type = "file_roll"
directory = "{0}/kept"
channel = "queue"
"""


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[str]:
    """Yield the expressions of all rules and panels, with an interval in place of Grafana's variable."""
    yield from (rule["expr"] for rule in rules())
    for board in DASHBOARDS:
        for panel in json.loads(board.read_text())["panels"]:
            yield from (target["expr"].replace("$__rate_interval", "5m") for target in panel["targets"])


def metrics_of(agent: Agent) -> str:
    return answer_scrape(prometheus(figures(agent)), "", "")[0].decode()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the names of the metrics of a running agent and of a producer."""
    folder = tmp_path_factory.mktemp("agent")
    (folder / "a.log").write_text("one\n")
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    agent = Agent(parse_toml(AGENT.format(folder)))
    agent.start()
    try:
        eventually(lambda: all(name in metrics_of(agent) for name in ("lag_seconds", "certificate_expiry")))
        text = metrics_of(agent)
    finally:
        assert agent.stop(60)
    with Producer(sink=RecordingSink()) as producer:
        families = list(LogHubCollector(producer).describe())
    own = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    return own | set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("path", [DEPLOY / "alerts.yml", *DASHBOARDS], ids=lambda path: path.name)
def test_each_metric_exists(path: Path, exported: set[str]) -> None:
    """Alerts and dashboards name metrics that an agent or a producer exports."""
    named = {name for name in METRIC.findall(path.read_text()) if not name.endswith("_")}
    assert len(named) > 5
    assert named - exported == set()


def test_each_expression_is_promql() -> None:
    """Prometheus' grammar takes the expressions of all rules and panels."""
    found = list(expressions())
    assert len(found) > 30
    for expression in found:
        promql_parser.parse(expression)


def test_each_rule_says_how_bad_it_is_and_what_happened() -> None:
    """Each alert has a severity and a summary."""
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules())


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_a_dashboard_can_be_imported(path: Path) -> None:
    """Each panel has an id and a place of its own, and reads the chosen data source and the chosen agents."""
    board = json.loads(path.read_text())
    source, chosen = (variable["name"] for variable in board["templating"]["list"])
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len({tuple(panel["gridPos"].values()) for panel in panels}) > 5
    for panel in panels:
        assert panel["datasource"]["uid"] == f"${{{source}}}"
        assert all(f'{chosen}=~"${chosen}"' in target["expr"] for target in panel["targets"])


@pytest.mark.parametrize(
    ("kind", "name"), [("container", "agent.Dockerfile"), ("kubernetes", "kubernetes/base/daemonset.yaml")]
)
def test_the_container_file_and_the_daemonset_are_those_of_producer_agent_unit(kind: str, name: str) -> None:
    """The container file and the DaemonSet are those of ``producer agent unit``."""
    assert (DEPLOY / name).read_text() == unit(kind), f"run: producer agent unit {kind} > examples/deploy/{name}"


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.Dockerfile")), ids=lambda path: path.name)
def test_a_container_runs_as_a_user_with_a_health_check(path: Path) -> None:
    """A container file has a user by number, a health check, and an entry point that gets its signals."""
    text = path.read_text()
    assert re.search(r"^USER [1-9]\d+$", text, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*\\\n  CMD \[", text, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["(tini|producer)", ', text, re.MULTILINE)
