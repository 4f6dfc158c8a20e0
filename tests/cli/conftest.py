from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def config_file(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the path of a test's profiles, so that the user's own are not read."""
    home = tmp_path_factory.mktemp("config")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    for name in (
        "PROFILE",
        "ENDPOINT",
        "PROJECT",
        "LOGSTORE",
        "REGION",
        "SIGN_VERSION",
        "SECURITY_TOKEN",
        "CREDENTIALS",
    ):
        monkeypatch.delenv(f"LOGHUB_{name}", raising=False)
    (home / "loghub-producer").mkdir()
    return home / "loghub-producer" / "config.toml"
