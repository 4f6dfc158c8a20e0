"""The console's page: its files, and their agreement with the operations.

``tests/browser`` tests its behaviour in a browser.
"""

import re
from pathlib import Path

import pytest
import requests

from producer.server import LogHubServer, console
from producer.server.console.page import SCRIPTS as SCRIPT_NAMES
from producer.server.console.table import PLAIN_ROWS

FOLDER = Path(console.__file__).parent
HTML, CSS = ((FOLDER / f"console.{ending}").read_text() for ending in ("html", "css"))
SCRIPTS = {name: (FOLDER / name).read_text() for name in SCRIPT_NAMES}
SCRIPT = "".join(SCRIPTS.values())


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        ("", "text/html", HTML),
        ("/console.css", "text/css", CSS),
        *((f"/{name}", "text/javascript", text) for name, text in SCRIPTS.items()),
    ],
)
def test_the_page_is_sent_as_it_is(server: LogHubServer, path: str, kind: str, text: str) -> None:
    """Each file has its media type, and a policy that permits connections to this server only."""
    answer = requests.get(f"{server.endpoint}/console{path}", timeout=60)
    assert (answer.status_code, answer.text) == (200, text)
    assert answer.headers["Content-Type"] == f"{kind}; charset=utf-8"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_at_the_root_a_browser_is_redirected_to_the_console_other_tools_get_its_address(server: LogHubServer) -> None:
    """At the root a browser is redirected to the console, other tools get its address, LogHub clients an error."""
    browser = requests.get(server.endpoint, headers={"Accept": "text/html,*/*"}, allow_redirects=False, timeout=60)
    assert (browser.status_code, browser.headers["Location"]) == (302, "/console")
    curl = requests.get(server.endpoint, headers={"Accept": "*/*"}, allow_redirects=False, timeout=60)
    assert (curl.status_code, curl.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    assert f"{server.endpoint}/console\n" in curl.text
    client = requests.get(server.endpoint, headers={"x-log-apiversion": "0.6.0"}, allow_redirects=False, timeout=60)
    assert (client.status_code, client.json()["errorCode"]) == (401, "MissAccessKeyId")


def test_with_its_own_keys_the_page_is_public_and_its_data_is_not() -> None:
    """With its own keys the page is public and its data is not; the challenge opens no form of the browser."""
    with LogHubServer(access_keys={"me": "secret"}) as server:
        assert requests.get(f"{server.endpoint}/console", timeout=60).status_code == 200
        asked = requests.get(f"{server.endpoint}/console/api/logstores", timeout=60)
        assert (asked.status_code, asked.headers["WWW-Authenticate"].split()[0]) == (401, "LogHub-Key")


def test_a_console_for_this_machine_only_refuses_others_without_a_challenge(server: LogHubServer) -> None:
    """A console for this machine only refuses others without a challenge."""
    answer = requests.get(f"{server.endpoint}/console/api/logstores", headers={"Host": "evil.example"}, timeout=60)
    assert answer.status_code == 401
    assert "WWW-Authenticate" not in answer.headers


def test_no_file_names_another_site_except_namespaces_of_its_languages() -> None:
    """No file names another site, except namespaces of its languages."""
    for text in (HTML, CSS, *SCRIPTS.values()):
        assert set(re.findall(r"https?://[^/\"]+", text)) <= {"http://www.w3.org"}
        assert "innerHTML" not in text


def test_the_page_has_each_element_view_and_operation_that_the_script_uses() -> None:
    """The page has each element, view and operation that the script uses."""
    ids = set(re.findall(r' id="([\w-]+)"', HTML))
    assert set(re.findall(r'\$\("#([\w-]+)', SCRIPT)) <= ids
    views = re.findall(r'data-view="(\w+)"', HTML)
    assert views == re.findall(r'"(\w+)"', re.search(r"const VIEWS = \[(.*?)\]", SCRIPT)[1])  # type: ignore[index]
    assert all(re.search(rf"async {view}\(", SCRIPTS["console.js"]) and view in ids for view in views)
    asked = set(re.findall(r"""(?:api|act)\(["`](\w+)""", SCRIPT))
    assert asked == {row.path.split("/")[3] for row in PLAIN_ROWS if row.path.startswith("/console/api/")}
