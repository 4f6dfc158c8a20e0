import re
from pathlib import Path

import pytest

from docs.generated import TABLES
from producer.agent.config import parse_toml
from producer.agent.config.explain import explain
from producer.agent.config.flume_differences import DIFFERENCES
from producer.agent.config.registry import BUILT_IN, class_of
from producer.agent.run.blueprint import draw
from producer.model.options import options_of

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENTS = [
    *(DOCS / f"{name}.md" for name in ("migrate/flume", "start/agent", "zh/start")),
    *sorted((DOCS / "agent").rglob("*.md")),
]
TEXT = "\n".join(document.read_text() for document in DOCUMENTS)


def test_the_configurations_of_the_page_are_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each TOML block with sources and sinks in the agent's pages is a valid configuration."""
    for name in ("LOGHUB_ACCESS_KEY_ID", "LOGHUB_ACCESS_KEY_SECRET"):
        monkeypatch.setenv(name, "x")
    blocks = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    whole = [block for block in blocks if "[sources." in block and "[sinks." in block]
    assert whole
    for block in whole:
        draw(parse_toml(block))


def test_each_component_type_with_options_has_exactly_one_table_of_them() -> None:
    """Each component type with options has exactly one table of them."""
    pages = [*DOCUMENTS, DOCS / "reference" / "agent-options.md"]
    marks = re.findall(r"^<!-- options: (\w+\.\w+) -->$", "\n".join(page.read_text() for page in pages), re.MULTILINE)
    tables = [table for mark in marks for table in _tables(*mark.split("."))]
    types = {f"{kind}.{name}" for kind, known in BUILT_IN.items() for name in known if class_of(kind, name).Options}
    assert sorted(tables) == sorted(name for name in types if options_of(class_of(*name.split(".")).Options))


def _tables(kind: str, name: str) -> list[str]:
    """Return the types whose tables a mark stands for: ``each.KIND`` has those of all types with options."""
    if kind != "each":
        return [f"{kind}.{name}"]
    return [f"{name}.{each}" for each in re.findall(r"^### (\w+)$", TABLES[f"each.{name}"](), re.MULTILINE)]


def test_the_comparison_has_a_row_of_each_source_and_sink() -> None:
    """``compare.md`` has a row of each built-in source and sink, except those for tests."""
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "agent/compare.md").read_text(), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"\w+", row)}
    assert told == {*BUILT_IN["sources"], *BUILT_IN["sinks"]} - {"sequence", "stress", "logger", "null"}


def test_explain_lists_all_differences_from_flume_which_docs_migrate_flume_md_does_not_repeat() -> None:
    """``explain`` lists all differences from Flume, which ``docs/migrate/flume.md`` does not repeat."""
    page = " ".join(next(path for path in DOCUMENTS if path.stem == "flume").read_text().replace("`", "").split())
    for name, rows in DIFFERENCES.items():
        told = " ".join(explain(name).split())
        for theirs, ours in rows:
            assert f"* Flume: {theirs}; here: {ours}" in told
            assert theirs not in page
    assert "Flume: after a crash .tmp files" in explain("hdfs")
    assert "the connection waits" not in explain("syslog_udp")  # UDP has no connections
