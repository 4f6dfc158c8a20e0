"""The interceptor kubernetes, against a small API server that speaks list and watch over TLS."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.agent import Agent
from producer.agent.config import parse_toml
from producer.agent.interceptors import pod_watch
from producer.agent.interceptors.kubernetes import KubernetesInterceptor
from producer.model.errors import ConfigError
from tests.agent.components import headers, interceptor, lines
from tests.support.waiting import eventually

from .pod_api import PodApi


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PodApi]:
    monkeypatch.setattr(pod_watch, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(pod_watch, "_LONGEST_PAUSE", 0.05)
    api = PodApi(tmp_path)
    yield api
    api.close()


@pytest.fixture
def made(api: PodApi) -> Iterator[Any]:
    """Build interceptors of the API, closed at the end."""
    found: list[KubernetesInterceptor] = []

    def make(**options: Any) -> KubernetesInterceptor:
        given = {"node": "node-1", "api": api.url, "token_file": api.token, "ca_file": api.ca, "wait": 60.0}
        found.append(interceptor("kubernetes", **{**given, **options}))
        return found[-1]

    yield make
    for each in found:
        each.close()
        assert not each._pods._thread.is_alive()


def seen(one: KubernetesInterceptor, uid: str) -> dict[str, str]:
    (found,) = headers(one.intercept(lines("a", uid=uid)))
    return found


def knows(one: KubernetesInterceptor, uid: str) -> bool:
    return "label.app" in seen(one, uid)


def test_labels_annotations_and_the_node_become_headers(api: PodApi, made: Any) -> None:
    """The first lines already have their pod's labels, wanted annotations, and the node; static pods too."""
    api.put("u1", team="web", other="x")
    api.put("mirror", **{"kubernetes_io__config.hash": "of-the-path"})
    one = made(annotations=["team"])
    assert seen(one, "u1") == {"uid": "u1", "node": "node-1", "label.app": "of-u1", "annotation.team": "web"}
    assert seen(one, "of-the-path")["label.app"] == "of-mirror"
    assert headers(made(labels=False).intercept(lines("a", uid="u1"))) == [{"uid": "u1", "node": "node-1"}]


def test_annotations_exclude_and_parse_a_pods_lines(api: PodApi, made: Any, caplog: pytest.LogCaptureFixture) -> None:
    """``exclude`` drops a pod's lines, ``parser`` parses them; an unknown parser is logged once."""
    api.put("out", loghub_io__exclude="true")
    api.put("json", loghub_io__parser="json")
    api.put("odd", loghub_io__parser="cobol")
    one = made()
    batch = lines('{"a":"1"}', '{"a":"2"}', '{"a":"3"}', '{"a":"4"}', '{"a":"5"}')
    uids = ["out", "json", "odd", None, "json"]
    found = list(one.intercept(batch.with_column("uid", uids)).events())
    assert sorted((body, events.get("a"), events.get("uid")) for events, body in found) == [
        (b'{"a":"2"}', "2", "json"),
        (b'{"a":"3"}', None, "odd"),
        (b'{"a":"4"}', None, None),
        (b'{"a":"5"}', "5", "json"),
    ]
    assert one._counters.get("EventDroppedCount") == 1
    seen(one, "odd")
    assert caplog.text.count("cobol") == 1


def test_lines_pass_while_the_api_is_away(api: PodApi, made: Any, caplog: pytest.LogCaptureFixture) -> None:
    """While the API refuses, lines pass without labels and are counted; labels come once it answers."""
    api.put("u1")
    api.down = True
    one = made()
    assert seen(one, "u1") == {"uid": "u1", "node": "node-1"}
    assert one._counters.get("UnknownPodCount") == 1
    api.down = False
    eventually(lambda: knows(one, "u1"), "labels")
    assert "status 503" in caplog.text
    assert "a-token" not in caplog.text


def test_a_file_that_is_no_token_is_not_shown(
    api: PodApi, made: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that cannot be a token is not in the log; the next one is read."""
    api.put("u1")
    (file := tmp_path / "other").write_text("sec\nret")
    one = made(token_file=file)
    assert not knows(one, "u1")
    assert "holds no token" in caplog.text
    assert "sec" not in caplog.text.replace("seconds", "")
    file.write_text(api.token.read_text())
    eventually(lambda: knows(one, "u1"), "labels")


def test_a_silent_api_holds_the_first_lines_for_no_longer_than_wait(api: PodApi, made: Any) -> None:
    """An API that accepts connections and is silent delays only the first lines, by ``wait`` at most."""
    with api.changed:  # its list waits for this lock
        one = made(wait=0.05)
        assert seen(one, "u1") == {"uid": "u1", "node": "node-1"}
    assert not one._pods._stop.is_set()


def test_a_watch_resumes_at_its_last_version_also_after_it_broke(api: PodApi, made: Any) -> None:
    """A broken watch is resumed at the version of its last event or bookmark, without another list."""
    api.put("u1")
    one = made()
    assert knows(one, "u1")
    api.break_after = 1
    for number in range(2, 6):
        api.put(f"u{number}")
        api.bookmark()
    eventually(lambda: one._pods._version == str(api.version), "the last bookmark")
    assert knows(one, "u5")
    assert api.lists() == 1
    assert len(api.watches()) == len({*api.watches()}) > 4


@pytest.mark.parametrize("is_open", [True, False])
def test_a_version_that_is_gone_lists_the_pods_again(api: PodApi, made: Any, is_open: bool) -> None:
    """410 Gone, in an open watch or as the answer to a new one, lists the pods again."""
    api.put("u1")
    one = made()
    assert knows(one, "u1")
    eventually(lambda: len(api.watches()) == 1, "the watch")
    if not is_open:
        api.break_after = 0
        api.down = True
        api.bookmark()
        eventually(lambda: len(api.requests) > 3, "a refused watch")
    api.put("u2")
    api.forget()
    api.break_after, api.down = None, False
    eventually(lambda: knows(one, "u2"), "the new pod")
    eventually(lambda: api.lists() == 2, "the second list")


def test_five_hundred_pods_that_come_and_go_are_known_within_the_bound(api: PodApi, made: Any) -> None:
    """Of 500 pods that come and go, through broken watches and lists in pages, each is known while it logs, and as
    long afterwards as the bound lets it be remembered."""
    for number in range(250):
        api.put(f"u{number}")
    one = made(most_pods=300)
    assert all(knows(one, f"u{number}") for number in range(250))
    api.break_after = 40
    for number in range(250, 500):
        api.put(f"u{number}")
        api.put(f"u{number - 250}", "DELETED")
        if number % 100 == 0:
            api.forget()
    eventually(lambda: one._pods._version == str(api.version), "all events")
    assert len(one._pods._pods) == 300
    assert all(knows(one, f"u{number}") for number in range(250, 500))


def test_the_watch_ends_with_its_source_while_the_api_is_silent(api: PodApi, made: Any) -> None:
    """``close`` ends a watch that waits for events, and leaves no thread."""
    one = made()
    seen(one, "u1")
    eventually(lambda: len(api.watches()) == 1, "the watch")
    one.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "producer-agent-pods"]


AGENT = """
[agent]
state = "{0}/state"
[sources.pods]
type = "taildir"
paths = ["{0}/containers/*.log"]
line_format = "containers"
pod_headers = true
channels = ["queue"]
[[sources.pods.interceptors]]
type = "kubernetes"
node = "node-1"
api = "{1}"
token_file = "{0}/token"
ca_file = "{0}/ca.crt"
[channels.queue]
type = "memory"
[sinks.kept]
type = "file_roll"
directory = "{0}/kept"
serializer = "json"
channel = "queue"
"""


def test_an_agent_adds_labels_to_the_lines_of_a_nodes_files(api: PodApi, tmp_path: Path) -> None:
    """An agent labels lines by their files' pods, and leaves no thread when it stops."""
    api.put("uid-1")
    (log := tmp_path / "pods/shop_web_uid-1/app/0.log").parent.mkdir(parents=True)
    log.write_text("2024-01-01T00:00:00Z stdout F hello\n")
    (link := tmp_path / f"containers/web_shop_app-{'3f' * 32}.log").parent.mkdir()
    link.symlink_to(log)
    agent = Agent(parse_toml(AGENT.format(tmp_path, api.url)))
    agent.start()
    try:
        kept = tmp_path / "kept"
        eventually(lambda: any("hello" in path.read_text() for path in kept.glob("*")), "the line")
    finally:
        assert agent.stop(60)
    text = "".join(path.read_text() for path in kept.glob("*"))
    assert all(each in text for each in ("of-uid-1", "node-1", "shop", "uid-1", "app"))
    assert not [thread for thread in threading.enumerate() if thread.name == "producer-agent-pods"]


def test_another_authoritys_server_gets_no_token(api: PodApi, made: Any, tmp_path: Path) -> None:
    """The API's certificate is checked before the token is sent; an address without TLS is refused."""
    (other := tmp_path / "other").mkdir()
    stranger = PodApi(other)
    try:
        assert not knows(made(api=stranger.url), "u1")
        assert stranger.requests == []
    finally:
        stranger.close()
    with pytest.raises(ConfigError, match="https://"):
        KubernetesInterceptor.Options(node="n", api="http://127.0.0.1:1")


def test_outside_of_a_pod_the_address_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``api`` the address comes from the pod's environment; without both it is a mistake."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        KubernetesInterceptor.Options(node="n").address()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    assert KubernetesInterceptor.Options(node="n").address() == "https://[fd00::1]:6443"
