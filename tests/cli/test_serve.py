import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from producer.cli import serve
from producer.cli.exit_codes import ExitCode
from producer.cli.local_key import local_key
from producer.cli.serve import add_arguments, run
from producer.runtime.system_user import user_name
from producer.server import LogHubServer
from producer.text.extras import how_to_install

from ..server.client import LOGSTORE, PROJECT, Client, error_of, log_group

PROGRAM = """
import argparse, sys
from producer.cli.serve import add_arguments, run
parser = argparse.ArgumentParser()
add_arguments(parser)
sys.exit(run(parser.parse_args()))
"""


@contextmanager
def serving(*options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """Start the command, and yield the process, its line and its port."""
    command = [sys.executable, "-c", PROGRAM, "--port", "0", *options]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=environ)
    with process:
        try:
            line = process.stdout.readline()
            yield process, line, int(re.search(r"http://127\.0\.0\.1:(\d+)", line)[1])
        finally:
            process.kill()


def client_of(port: int, key_id: str, secret: str) -> Client:
    where = SimpleNamespace(
        host="127.0.0.1",
        port=port,
        endpoint=f"http://127.0.0.1:{port}",
        access_key_id=key_id,
        access_key_secret=secret,
    )
    return Client(where)  # type: ignore[arg-type]  # all that a client needs of a server


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_where_it_listens_and_ends_at_a_signal(
    tmp_path: Path, config_file: Path, number: signal.Signals
) -> None:
    """`serve` prints the user, the endpoint and how to sign, writes its files, and exits with 0 after a signal."""
    access = tmp_path / "access.log"
    with serving("--data", str(tmp_path), "--access-log", str(access)) as (process, line, port):
        key = local_key(config_file.parent)
        assert f"LogHub of user {user_name()} listens on" in line
        assert key["access_key_id"] in line
        assert key["access_key_secret"] not in line
        assert str(tmp_path) in line
        with client_of(port, *key.values()) as client:
            assert client.put(log_group("kept")).status_code == 200
            process.send_signal(number)
            assert (process.wait(60), process.stderr.read()) == (0, "")
    (request,) = map(json.loads, access.read_text().splitlines())
    assert (request["operation"], request["status"], request["logs"]) == ("PutLogs", 200, 1)
    with LogHubServer(data=tmp_path) as server:
        assert server.count(PROJECT, LOGSTORE) == 1


def test_serve_takes_keys_and_does_not_print_the_secret() -> None:
    """`serve` accepts only the given keys, does not print the secret, and obeys --strict and --shards."""
    options = ("--access-key-id", "me", "--strict", "--shards", "5")
    with serving(*options, LOGHUB_SERVER_ACCESS_KEY_SECRET="hush-hush") as (_, line, port):
        assert "hush" not in line
        with client_of(port, "test-access-key-id", "test-access-key-secret") as stranger:
            assert error_of(stranger.put(log_group("x"))) == (401, "InvalidAccessKeyId")
        with client_of(port, "me", "hush-hush") as client:
            assert error_of(client.put(log_group("x"))) == (404, "ProjectNotExist")
            client.post_json("/", b'{"projectName": "my-project"}')
            client.post_json("/logstores", b'{"logstoreName": "app-log"}')
            assert len(client.get("/logstores/app-log/shards").json()) == 5


def parse(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(options)


def test_no_command_writes_into_the_server_of_another_user(tmp_path: Path) -> None:
    """Commands with the profile local are refused by another user's server, and the error names the user."""
    one, other = ({"XDG_CONFIG_HOME": str(tmp_path / name)} for name in ("one", "other"))
    with serving(**one) as (_, _, port):

        def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
            where = ["--profile", "local", "--endpoint", f"http://127.0.0.1:{port}"]
            program = [sys.executable, "-m", "producer", *arguments, *where]
            environ = {**os.environ, **environment}
            return subprocess.run(program, capture_output=True, text=True, check=False, env=environ)

        # Users differ in their key ids. Here both ids are the same, and the secrets differ.
        refused = command("send", "-p", "p", "-l", "l", "hello", **other)
        assert refused.returncode == 1
        assert "SignatureNotMatch" in refused.stderr
        checked = command("check", "-p", "p", "-l", "l", **one)
        assert (checked.returncode, checked.stderr) == (0, "")
        assert f"(an embedded LogHub of user {user_name()!r})" in checked.stdout
        assert command("projects", "--output", "jsonl", **one).stdout == ""


def test_a_refusal_of_an_unknown_key_names_the_servers_user() -> None:
    """A refusal of an unknown key names the server's user, on this machine only."""
    with LogHubServer() as server, Client(server, access_key_id="local-bob", access_key_secret="x") as client:
        answer = client.put(log_group("x"))
        assert error_of(answer) == (401, "InvalidAccessKeyId")
        assert answer.json()["errorMessage"].endswith(f"run by user {user_name()!r}")
        server._service.user = ""
        assert client.put(log_group("x")).json()["errorMessage"].endswith("is not known here")


def test_a_shell_takes_the_key_of_the_user(capsys: pytest.CaptureFixture[str], config_file: Path) -> None:
    """``--env`` prints variables for a shell, and does not serve."""
    assert run(parse("--env", "--port", "1234")) == ExitCode.OK
    key = local_key(config_file.parent)
    values = [f"LOGHUB_{name.upper()}={value}" for name, value in key.items()]
    assert capsys.readouterr().out == f"export LOGHUB_ENDPOINT=http://127.0.0.1:1234 {' '.join(values)}\n"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_is_shown_the_key_of_the_console(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    """The console's address has the key only on a terminal."""
    with LogHubServer(access_keys={"local-me": "mine"}) as server:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
        serve._announce(server, parse())
        fragment = "#key=local-me&secret=mine" if is_terminal else ""
        assert f"console {server.endpoint}/console{fragment};" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--port", "70000"), "--port is 70000"),
        (("--shards", "0"), "--shards is 0"),
        (("--access-key-id", "a"), "belong together"),
        (("--access-key-secret", "b"), "belong together"),
        (("--access-log", "/no/such/folder/x"), "--access-log /no/such/folder/x cannot be written"),
    ],
)
def test_a_wrong_option_is_refused_in_words(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    """An invalid option is reported with value and rule, and exits with 2."""
    assert run(parse(*options)) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_the_default_key_is_not_served_to_other_machines(capsys: pytest.CaptureFixture[str]) -> None:
    """--host beyond this machine needs an access key, and the error names its options."""
    assert run(parse("--host", "0.0.0.0", "--port", "0")) == ExitCode.USAGE
    assert "--access-key-id" in capsys.readouterr().err


def test_a_port_in_use_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A port in use is reported."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(parse("--port", str(port))) == ExitCode.USAGE
    assert f"port {port}" in capsys.readouterr().err


WITHOUT_EXTRA = """
import sys
for name in ("uvicorn", "starlette", "h11", "google.protobuf"):
    sys.modules[name] = None
import producer.server
try:
    producer.server.LogHubServer
except ImportError as error:
    print(error)
from producer.cli.serve import add_arguments, run
import argparse
import json
parser = argparse.ArgumentParser()
add_arguments(parser)
sys.exit(run(parser.parse_args([])))
"""


def test_serve_and_the_servers_class_say_what_to_install_importing_the_package_works() -> None:
    """Without its extra, `serve` and the server's class say what to install; importing the package works."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == ExitCode.USAGE
    assert how_to_install("server") in done.stdout
    assert how_to_install("server") in done.stderr
    assert "Traceback" not in done.stderr
