"""A checkpoint belongs to one target and one set of paths, and is never followed itself."""

from collections.abc import Callable
from pathlib import Path

import pytest

from producer.cli import ship as cli
from producer.server import LogHubServer
from producer.ship import spark_engine
from producer.ship.errors import InputError
from producer.ship.files.whole import read_checked
from producer.ship.follow.checkpoint import checkpoint_directory, claim_checkpoint
from producer.ship.options import ShipOptions

from ...support.syncs import noted_syncs
from ..conftest import parse_ship, ship_arguments

Claim = Callable[..., None]


@pytest.fixture
def claim(tmp_path: Path) -> Claim:
    """Return a function that claims the checkpoint."""

    def run(**changed: object) -> None:
        target = {"endpoint": "http://localhost:1", "project": "p", "logstore": "l", "paths": ["/logs"]}
        chosen = {**target, "exclude": ["*.bak"], **changed}
        args = parse_ship(["x", *(f"--{name}={chosen[name]}" for name in ("endpoint", "project", "logstore"))])
        job = cli.job_of(args, {"LOGHUB_ACCESS_KEY_ID": "id", "LOGHUB_ACCESS_KEY_SECRET": "the-secret"})
        claim_checkpoint(
            job,
            ShipOptions(
                paths=chosen["paths"],  # type: ignore[arg-type]
                exclude=chosen["exclude"],  # type: ignore[arg-type]
                checkpoint=str(tmp_path / "checkpoint"),
            ),
            "spark",
        )

    return run


def test_checkpoint_is_used_again_for_the_same_target(claim: Claim, tmp_path: Path) -> None:
    """The first start stores the target, without secrets; later ones accept it, in any order of paths."""
    claim(paths=["/a", "/b"], exclude=["*.gz"])
    claim(paths=["/b", "/a"], exclude=["*.gz"])
    (file,) = (tmp_path / "checkpoint").iterdir()
    assert read_checked(file) == {
        "engine": "spark",
        "exactly_once": False,
        "endpoint": "http://localhost:1",
        "project": "p",
        "logstore": "l",
        "paths": ["/a", "/b"],
        "exclude": ["*.gz"],
    }


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"endpoint": "http://localhost:2"}, "endpoint http://localhost:1, not http://localhost:2"),
        ({"project": "other"}, "project p, not other"),
        ({"logstore": "other"}, "logstore l, not other"),
        ({"paths": ["/logs", "/more"]}, "paths /logs, not /logs /more"),
        ({"exclude": []}, r"exclude \*\.bak, not \(none\)"),
        ({"exclude": ["*.gz"]}, r"exclude \*\.bak, not \*\.gz"),
    ],
)
def test_checkpoint_of_another_target_is_refused_naming_both(
    claim: Claim, changed: dict[str, object], said: str
) -> None:
    """A checkpoint of another target is refused with the differences, and stays unchanged."""
    claim()
    with pytest.raises(InputError, match=f"checkpoint belongs to {said}"):
        claim(**changed)
    claim()


def test_a_pattern_to_exclude_may_be_added_and_cannot_be_removed_afterwards(claim: Claim) -> None:
    """A pattern to exclude may be added, and cannot be removed afterwards."""
    claim()
    claim(exclude=["bad.gz", "*.bak"])
    claim(exclude=["*.bak", "bad.gz"])
    with pytest.raises(InputError, match=r"exclude \*\.bak bad\.gz, not \*\.bak"):
        claim()


def test_checkpoint_made_before_targets_were_kept_gets_one(claim: Claim, tmp_path: Path) -> None:
    """A checkpoint of an earlier version without a target is bound to the first one."""
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    claim()
    with pytest.raises(InputError, match="logstore l, not other"):
        claim(logstore="other")


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_an_unreadable_target_file_is_an_error_that_names_it_and_is_not_overwritten(
    claim: Claim, tmp_path: Path, content: str
) -> None:
    """An unreadable target file is an error that names it, and is not overwritten."""
    claim()
    file = tmp_path / "checkpoint" / "loghub-producer-target.json"
    file.write_text(content)
    with pytest.raises(InputError, match=r"cannot be read or written: .*loghub-producer-target\.json"):
        claim()
    assert file.read_text() == content


def test_a_checkpoint_that_cannot_be_written_is_an_error_with_its_path(claim: Claim, tmp_path: Path) -> None:
    """A checkpoint that cannot be written is an error with its path."""
    (tmp_path / "checkpoint").write_text("")
    with pytest.raises(InputError, match=r"cannot be read or written: .*checkpoint"):
        claim()


def test_command_refuses_the_checkpoint_of_another_target_before_spark_is_started(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command refuses the checkpoint of another target before Spark starts, with exit code 2 and both logstores."""

    def started(**_: object) -> None:
        raise InputError("Spark was started")

    monkeypatch.setattr(spark_engine, "running_context", started)
    arguments = ship_arguments(server, tmp_path / "logs", "--follow", "--checkpoint", tmp_path / "checkpoint")
    assert cli.run(parse_ship(arguments)) == 2
    assert "Spark was started" in capsys.readouterr().err
    assert cli.run(parse_ship([*arguments, "--logstore=other"])) == 2
    assert "logstore test-logstore, not other" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["", "/app", "/*.log"])
def test_followed_path_in_the_checkpoint_directory_is_refused(tmp_path: Path, path: str) -> None:
    """A followed path in the checkpoint directory is refused, as it would never be shipped."""
    with pytest.raises(InputError, match="is in the checkpoint directory"):
        checkpoint_directory(str(tmp_path), [f"{tmp_path}{path}"])


def test_a_checkpoint_and_followed_paths_may_be_file_uris_other_schemes_are_refused(
    tmp_path: Path, server: LogHubServer
) -> None:
    """A checkpoint and followed paths may be ``file:`` URIs; other schemes are refused."""
    arguments = ship_arguments(server, f"file://{tmp_path}/logs", "--follow")
    options = cli._ship_options(parse_ship([*arguments, f"--checkpoint=file://{tmp_path}/ck"]))
    assert options is not None
    assert (options.paths, options.checkpoint) == ([f"{tmp_path}/logs"], f"{tmp_path}/ck")
    with pytest.raises(InputError, match="hdfs://"):
        cli._ship_options(parse_ship([*arguments, "--checkpoint=hdfs://host/ck"]))


def test_target_is_on_the_disk_before_anything_is_shipped(claim: Claim, tmp_path: Path) -> None:
    """The target is synced before anything is shipped: its name of exactly-once delivery must survive a power cut."""
    with noted_syncs() as seen:
        claim()
    (file,) = (tmp_path / "checkpoint").iterdir()
    directory = file.parent.stat().st_ino
    assert seen == [("file", file.stat().st_size), ("rename", file.name), ("directory", directory)]
