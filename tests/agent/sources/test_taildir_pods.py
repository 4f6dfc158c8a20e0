"""taildir on a node of Kubernetes: links of ``/var/log/containers``, rotations by the kubelet, removed pods."""

import gzip
import logging
import shutil
from pathlib import Path

import pytest

from producer.agent.sources.reading.pods import pod_headers

from .following import Tail

ID, UID = "3f" * 32, "0ad6a3a8-9d0d-4b8e-bb1b-0a6a3a89d0d4"
OF_POD = {"namespace": "shop", "pod": "web-63", "container": "app", "uid": UID}


class Node:
    """A node's ``/var/log``, with one container of one pod.

    :param docker: True if Docker has the file, to which the pod's path is a link.
    :param number: the number of the pod, of which its container's ID is made.
    """

    def __init__(self, folder: Path, *, docker: bool = False, number: int = 0x3F) -> None:
        pod, container = f"web-{number}", f"{number:02x}" * 32
        self.log, self._docker, self._count, self.number = folder / "log", docker, 0, number
        self.directory = self.log / f"pods/shop_{pod}_{UID}/app"
        self.link = self.log / f"containers/{pod}_shop_app-{container[:64]}.log"
        self.directory.mkdir(parents=True)
        self.link.parent.mkdir(exist_ok=True)
        self.file = folder / f"docker/{container}/{container}-json.log" if docker else self.directory / "0.log"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.touch()
        if docker:
            (self.directory / "0.log").symlink_to(self.file)
        self.link.symlink_to(self.directory / "0.log")

    def write(self, count: int = 10) -> None:
        with self.file.open("ab") as file:
            for text in self.written(count):
                line = b'{"log":"%s\\n","stream":"stdout","time":"2024-01-01T00:00:00Z"}' % text
                file.write((line if self._docker else b"2024-01-01T00:00:00Z stdout F " + text) + b"\n")

    def written(self, count: int) -> list[bytes]:
        self._count += count
        return [b"line %d.%04d" % (self.number, number) for number in range(self._count - count, self._count)]

    @property
    def all(self) -> list[bytes]:
        return [b"line %d.%04d" % (self.number, number) for number in range(self._count)]

    def rotate(self) -> None:
        """Rotate as the kubelet does, which compresses the file of the rotation before; Docker compresses at once."""
        beside = self.file.parent
        for path in [path for path in beside.glob(f"{self.file.name}.*") if path.suffix != ".gz"]:
            self._compress(path)
        name = f"{self.file.name}.20240101-{self._count:06}"
        self.file.rename(beside / name)
        self.file.touch()

    @staticmethod
    def _compress(path: Path) -> None:
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()

    def remove(self) -> None:
        """Remove the pod, as the kubelet does."""
        self.link.unlink()
        shutil.rmtree(self.directory)
        shutil.rmtree(self.file.parent, ignore_errors=True)


def tail(node: Node, tmp_path: Path, *more: str) -> Tail:
    options = {"allow_links_to": (str(tmp_path / "docker"),), "line_format": "containers", "pod_headers": True}
    return Tail(tmp_path, f"{node.log}/containers/*.log", *more, **options)


@pytest.mark.parametrize("docker", [False, True])
def test_a_link_of_containers_gives_the_headers_of_its_pod(tmp_path: Path, *, docker: bool) -> None:
    """Namespace, pod, container and uid come from the path of the link, and from its target's."""
    node = Node(tmp_path, docker=docker)
    node.write()
    followed = tail(node, tmp_path)
    followed.look()
    (batch,) = followed.batches()
    assert batch.bodies() == node.all
    assert {name: batch.shared[name] for name in OF_POD} == OF_POD


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/var/log/pods/kube-system_etcd-node1_{'0f' * 16}/etcd/3.log.20240101-000000", "kube-system etcd-node1 etcd"),
        (f"/var/log/containers/a.b-1_ns_side-car-{ID}.log", "ns a.b-1 side-car"),
        ("/var/log/containers/a_ns_c-123.log", None),
        ("/var/log/pods/plain/c/0.log", None),
        ("/var/log/syslog", None),
    ],
)
def test_the_path_gives_the_headers_and_another_path_gives_none(path: str, expected: str | None) -> None:
    """A path in the layout of the kubelet gives the headers; another path gives none."""
    found = pod_headers(path)
    assert " ".join(found.get(name, "") for name in ("namespace", "pod", "container")) == (expected or "  ")


@pytest.mark.parametrize("docker", [False, True])
@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("rotations", [1, 2])
def test_rotation_by_the_kubelet_loses_and_repeats_no_line(
    tmp_path: Path, *, docker: bool, stopped: bool, rotations: int
) -> None:
    """Lines before and after a rotation arrive once, also if the agent is stopped, and the file is compressed then."""
    node = Node(tmp_path, docker=docker)
    followed = tail(node, tmp_path, f"{node.file.parent}/*.log.????????-??????")
    node.write()
    seen = followed.seen(1.0)
    if stopped:
        followed.close()
    for _ in range(rotations):
        node.write()
        node.rotate()
        node.write()
        if not stopped:
            seen += followed.seen(1.0)
    if stopped:
        followed.restart()
    for seconds in (1.0, 5.0, 200.0, 5.0):
        seen += followed.seen(seconds)
    followed.restart()
    seen += followed.seen(1.0) + followed.seen(5.0)
    assert sorted(seen) == node.all


@pytest.mark.parametrize("docker", [False, True])
def test_a_rotated_file_is_found_beside_the_target_of_a_link(tmp_path: Path, *, docker: bool) -> None:
    """With the links alone, the unread rest of a file that was rotated while the agent was stopped is read."""
    node = Node(tmp_path, docker=docker)
    followed = tail(node, tmp_path)
    node.write()
    seen = followed.seen(1.0)
    followed.close()
    node.write()
    node.rotate()
    node.write()
    followed.restart()
    for seconds in (1.0, 200.0, 200.0):
        seen += followed.seen(seconds)
    assert sorted(seen) == node.all
    assert len(followed.follower._readers.by_key) == 1


def test_the_file_of_a_pod_that_is_gone_is_read_to_its_end(tmp_path: Path) -> None:
    """A file that was open when its pod was removed is read to its end, and then closed."""
    node = Node(tmp_path)
    followed = tail(node, tmp_path)
    node.write()
    seen = followed.seen(1.0)
    with node.file.open("ab") as open_file:
        node.remove()
        seen += followed.seen(1.0)
        for text in node.written(10):
            open_file.write(b"2024-01-01T00:00:00Z stderr F " + text + b"\n")
    for seconds in (1.0, 200.0, 1.0):
        seen += followed.seen(seconds)
    assert sorted(seen) == node.all
    assert not followed.follower._readers.by_key


def test_a_file_with_two_paths_is_not_taken_as_renamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is found by a link and in its own directory keeps its path; only a rotation is logged."""
    caplog.set_level(logging.INFO)
    node = Node(tmp_path)
    followed = tail(node, tmp_path, f"{node.directory}/*.log*")
    for _ in range(3):
        node.write()
        (node.directory / "a").touch()  # a change of the directory, which is scanned
        followed.look(1.0)
    assert "was renamed" not in caplog.text
    node.rotate()
    followed.look(1.0)
    assert caplog.text.count("was renamed") == 1


def test_five_hundred_pods_that_come_and_go_are_read_and_leave_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The lines of 500 short-lived pods arrive once each, under their own pod's name, although inodes are reused; no
    reader remains, and a removed directory is no trouble."""
    (tmp_path / "log/containers").mkdir(parents=True)
    paths, few = f"{tmp_path}/log/containers/*.log", {"max_open_files": 16}
    followed = Tail(tmp_path, paths, line_format="cri", pod_headers=True, **few)
    seen: list[tuple[str, bytes]] = []
    expected: list[tuple[str, bytes]] = []

    def look(seconds: float) -> None:
        followed.look(seconds)
        seen.extend((batch.shared["pod"], body) for batch in followed.batches() for body in batch.bodies())

    nodes: list[Node] = []
    for turn in range(20):
        for node in nodes:
            node.remove()  # new pods' files get their inodes
        nodes = [Node(tmp_path, number=100 * turn + number) for number in range(25)]
        for node in nodes:
            node.write(2)
        look(1.0)
        for node in nodes[:10]:
            node.write(2)
            node.rotate()
            node.write(2)
        look(1.0)
        expected += [(f"web-{node.number}", line) for node in nodes for line in node.all]
    for node in nodes:
        node.remove()
    for seconds in (1.0, 200.0, 200.0):
        look(seconds)
    assert sorted(seen) == sorted(expected)
    assert not followed.follower._readers.by_key
    assert "no copy was searched" not in caplog.text
