"""The files of a path, and reports of paths that are left out."""

import errno
import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from producer.ship.errors import InputError
from producer.ship.files.find import LINK_TO_DIRECTORY, Search
from producer.ship.files.log_file import open_file


def paths_of(*arguments: Path | str, exclude: list[str] | None = None) -> list[str]:
    found = Search([str(argument) for argument in arguments], exclude=exclude or []).all()
    return [file.path for file in found.files]


def test_a_directory_is_walked_to_its_bottom_and_its_files_come_sorted(tmp_path: Path) -> None:
    """A directory is walked to its bottom, and its files come sorted."""
    (tmp_path / "b" / "c").mkdir(parents=True)
    for name in ("b/c/deep.log", "b/x", "a.log"):
        (tmp_path / name).write_text("line\n")
    assert paths_of(tmp_path) == [str(tmp_path / name) for name in ("a.log", "b/c/deep.log", "b/x")]


def test_a_pattern_matches_files_and_with_two_stars_crosses_directories(tmp_path: Path) -> None:
    """A pattern matches files, and with two stars crosses directories."""
    (tmp_path / "sub").mkdir()
    for name in ("a.log", "b.txt", "sub/c.log"):
        (tmp_path / name).write_text("line\n")
    assert paths_of(tmp_path / "*.log") == [str(tmp_path / "a.log")]
    assert paths_of(tmp_path / "**" / "*.log") == [str(tmp_path / "a.log"), str(tmp_path / "sub" / "c.log")]


def test_an_existing_path_is_itself_whatever_characters_are_in_it(tmp_path: Path) -> None:
    """An existing path is itself, whatever characters are in it."""
    odd = tmp_path / "app[1].log"
    odd.write_text("line\n")
    assert paths_of(odd) == [str(odd)]


def test_file_uri_is_a_path(tmp_path: Path) -> None:
    """``file:`` URIs, also with escapes, stand for local paths."""
    file = tmp_path / "a b.log"
    file.write_text("line\n")
    assert paths_of(file.as_uri()) == [str(file)]


def test_file_named_twice_is_found_once(tmp_path: Path) -> None:
    """Overlapping arguments do not ship a file twice."""
    file = tmp_path / "a.log"
    file.write_text("line\n")
    assert paths_of(file, tmp_path, tmp_path / "*") == [str(file)]


def test_a_link_to_a_file_that_is_found_otherwise_is_left_out(tmp_path: Path) -> None:
    """A link to a file that is found otherwise is left out; a link to another allowed place is shipped."""
    outside = tmp_path / "outside"
    outside.write_text("line\n")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "app.log").write_text("line\n")
    (logs / "current.log").symlink_to(logs / "app.log")
    (logs / "other.log").symlink_to(outside)
    found = Search([str(logs)], allow_links_to=[str(tmp_path)]).all()
    assert [file.path for file in found.files] == [str(logs / "app.log"), str(logs / "other.log")]
    assert found.skipped == ((str(logs / "current.log"), f"link to {logs / 'app.log'}"),)


@pytest.mark.parametrize("path", ["logs", "logs/*.log", "lo*/*.log"])
def test_link_out_of_the_named_directories_is_not_followed(tmp_path: Path, path: str) -> None:
    """A user who can write to a directory cannot make the shipper read other files by a link."""
    secret, logs = tmp_path / "secret", tmp_path / "logs"
    for folder in (secret, logs):
        folder.mkdir()
        (folder / "a.log").write_text("line\n")
    (logs / "b.log").symlink_to(secret / "a.log")
    (logs / "linked").symlink_to(secret)
    given = [str(tmp_path / path)]
    if path.startswith("lo*"):  # The glob names the directory above, but not the targets of its links.
        (tmp_path.parent / "secret").mkdir(exist_ok=True)
        (tmp_path.parent / "secret" / "a.log").write_text("line\n")
        (logs / "b.log").unlink()
        (logs / "b.log").symlink_to(tmp_path.parent / "secret" / "a.log")
    found = Search(given).all()
    assert [file.path for file in found.files] == [str(logs / "a.log")]
    assert (str(logs / "b.log"), "a link to") in [(each, reason[:9]) for each, reason in found.unread]
    allowed = Search(given, allow_links_to=[str(tmp_path.parent)]).all()
    assert str(logs / "b.log") in [file.path for file in allowed.files]
    assert paths_of(logs / "b.log") == [str(logs / "b.log")]  # The file is named itself.


def test_links_of_containers_lead_to_their_pods(tmp_path: Path) -> None:
    """Links from /var/log/containers to pods, as the kubelet makes them, are followed."""
    pod, containers = tmp_path / "pods" / "web" / "app", tmp_path / "containers"
    pod.mkdir(parents=True)
    containers.mkdir()
    (pod / "0.log").write_text("line\n")
    (containers / "web_app.log").symlink_to(pod / "0.log")
    for path in (containers, containers / "*.log"):
        assert paths_of(path) == [str(containers / "web_app.log")]


def test_a_lenient_search_reports_a_named_path_that_is_unreadable(tmp_path: Path) -> None:
    """A lenient search reports a named path that is unreadable, and separately one that does not exist."""
    (tmp_path / "a.log").write_text("line\n")
    (tmp_path / "loop.log").symlink_to("loop.log")
    found = Search([f"{tmp_path}/*.log", f"{tmp_path}/none", f"{tmp_path}/*.txt"], lenient=True).all()
    assert [file.path for file in found.files] == [str(tmp_path / "a.log")]
    assert found.unread == ((f"{tmp_path}/loop.log", "cannot be read: Too many levels of symbolic links"),)
    assert found.absent == (
        (f"{tmp_path}/*.txt", "no file matches this pattern"),
        (f"{tmp_path}/none", "cannot be read: No such file or directory"),
    )


def test_a_missing_or_unreadable_path_does_not_keep_others_from_being_found(tmp_path: Path) -> None:
    """A missing or unreadable path does not keep others from being found."""
    (tmp_path / "a.log").write_text("line\n")
    (tmp_path / "loop.log").symlink_to("loop.log")
    found = Search([str(tmp_path / name) for name in ("none", "a.log", "loop.log")]).all()
    assert [file.path for file in found.files] == [str(tmp_path / "a.log")]
    assert [path for path, _ in found.unread] == [f"{tmp_path}/loop.log"]
    assert [path for path, _ in found.absent] == [f"{tmp_path}/none"]
    with pytest.raises(InputError, match="none: cannot be read: No such file"):
        Search([str(tmp_path / name) for name in ("none", "loop.log")]).all()


def test_a_file_of_another_encoding_in_a_directory_is_reported_with_the_option_to_ship_it(tmp_path: Path) -> None:
    """A file of another encoding in a directory is reported with the option to ship it."""
    (tmp_path / "a.log").write_bytes("INFO x\n".encode("utf-16") * 5)
    assert Search([str(tmp_path)]).all().skipped == (
        (f"{tmp_path}/a.log", "binary, but looks like utf-16: ship it with --encoding utf-16"),
    )


def test_binary_and_hidden_files_pipes_dangling_links_and_excluded_names_are_reported_with_a_reason(
    tmp_path: Path,
) -> None:
    """Binary and hidden files, pipes, dangling links and excluded names are reported with a reason."""
    (tmp_path / "wtmp").write_bytes(b"\x07\0\0\0")
    (tmp_path / ".hidden").write_text("x\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "old.bak").write_text("x\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "app.log").write_text("x\n")
    found = Search([str(tmp_path)], exclude=["*.bak"]).all()
    assert [file.path for file in found.files] == [str(tmp_path / "app.log")]
    assert dict(found.skipped) == {
        str(tmp_path / ".git"): "hidden",
        str(tmp_path / ".hidden"): "hidden",
        str(tmp_path / "dangling"): "No such file or directory",
        str(tmp_path / "old.bak"): "excluded",
        str(tmp_path / "pipe"): "not a regular file",
        str(tmp_path / "wtmp"): "binary",
    }


def test_a_link_to_a_directory_is_reported_and_not_entered_unless_it_is_named(tmp_path: Path) -> None:
    """A link to a directory is reported and not entered, unless it is named."""
    outside, logs = tmp_path / "outside", tmp_path / "logs"
    for folder in (outside, logs):
        folder.mkdir()
        (folder / "a.log").write_text("x\n")
    for name in ("linked", "left-out", ".hidden"):
        (logs / name).symlink_to(outside)
    (logs / "circle").symlink_to(logs)
    found = Search([str(logs)], exclude=["left-*"]).all()
    assert [file.path for file in found.files] == [str(logs / "a.log")]
    assert dict(found.skipped) == {
        str(logs / ".hidden"): "hidden",
        str(logs / "circle"): LINK_TO_DIRECTORY,
        str(logs / "left-out"): "excluded",
    }
    assert found.unread == ((str(logs / "linked"), LINK_TO_DIRECTORY),)  # Its files are not found otherwise.
    assert paths_of(logs / "linked") == [str(logs / "linked" / "a.log")]


def test_named_file_is_shipped_whatever_is_in_it(tmp_path: Path) -> None:
    """A named binary or hidden file is shipped."""
    file = tmp_path / ".wtmp"
    file.write_bytes(b"\0\0")
    assert paths_of(file) == [str(file)]


def test_a_search_in_steps_yields_each_file_once(tmp_path: Path) -> None:
    """A search in steps yields each file once, and a link when its target is known not to be found."""
    for number in range(300):
        (tmp_path / f"{number:03d}").write_text("line\n")
    (tmp_path / "000-link").symlink_to(tmp_path / "299")
    outside = tmp_path.parent / "outside.log"
    outside.write_text("line\n")
    (tmp_path / "001-link").symlink_to(outside)
    (tmp_path / "binary").write_bytes(b"\0")
    search = Search([str(tmp_path / "299"), str(tmp_path)], allow_links_to=[str(tmp_path.parent)])
    parts = []
    while not search.ended:
        search.advance(files=100)
        assert not parts or search.ended or search.waiting >= 100
        parts.append(search.take())
    paths = [file.path.rpartition("/")[2] for part in parts for file in part.files]
    assert len(parts) > 2
    assert sorted(paths) == sorted([*(f"{number:03d}" for number in range(300)), "001-link"])
    assert [path.rpartition("/")[2] for path, _ in parts[-1].skipped] == ["000-link", "binary"]


def test_an_invalid_named_path_is_an_error_before_any_file_is_shipped(tmp_path: Path) -> None:
    """An invalid named path is an error before any file is shipped."""
    assert Search([str(tmp_path), "/no/such/file"]).absent == (
        ("/no/such/file", "cannot be read: No such file or directory"),
    )


def test_the_content_of_a_file_not_its_name_decides_its_compression(tmp_path: Path) -> None:
    """The content of a file, not its name, decides its compression."""
    (tmp_path / "log.1").write_bytes(gzip.compress(b"line\n"))
    (tmp_path / "text.gz").write_bytes(b"line\n")
    found = Search([str(tmp_path)]).all()
    assert [file.compression for file in found.files] == ["gzip", None]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/no/such/file", "cannot be read: No such file or directory"),
        ("/no/such/*.log", "no file matches this pattern"),
        ("ftp://host/logs", "the scheme ftp:// is unknown; use a path, file:// or one of http://, https://, s3://"),
        ("file://other/logs", "the scheme file:// is unknown"),
    ],
)
def test_path_that_cannot_be_shipped_is_an_error(path: str, said: str) -> None:
    """A named path that cannot be shipped is an error."""
    with pytest.raises(InputError) as raised:
        Search([path]).all()
    assert path in str(raised.value)
    assert said in str(raised.value)


def test_an_unreadable_path_or_one_in_a_directory_that_cannot_be_entered_is_reported_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreadable path, or one in a directory that cannot be entered, is reported by name."""
    with pytest.raises(InputError, match="x: cannot be read: File name too long"):
        Search([f"{tmp_path}/{'x' * 300}"]).all()
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.log").write_text("line\n")
    status, listed = os.stat, os.scandir

    def refused(path: Any, *arguments: Any, **options: Any) -> Any:
        if str(path) == str(tmp_path / "inner"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return (status if arguments or options else listed)(path, *arguments, **options)

    monkeypatch.setattr(os, "scandir", refused)
    monkeypatch.setattr(os, "lstat", lambda path: refused(path, follow_symlinks=False))
    monkeypatch.setattr(Path, "lstat", lambda path: refused(path, follow_symlinks=False))
    found = Search([str(tmp_path)]).all()
    assert [file.path for file in found.files] == [str(tmp_path / "a.log")]
    assert found.unread == ((str(tmp_path / "inner"), "cannot be listed: Permission denied"),)
    with pytest.raises(InputError, match="inner: cannot be listed: Permission denied"):
        Search([str(tmp_path / "inner")]).all()


def test_named_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    """A named pipe is an error at once, without waiting for its writer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="not a regular file"):
        Search([str(pipe)]).all()


def test_renamed_file_is_opened_under_its_new_name(tmp_path: Path) -> None:
    """A file that rotation renames between planning and reading is read under its new name."""
    log = tmp_path / "app.log"
    log.write_text("old\n")
    (file,) = Search([str(log)]).all().files
    log.rename(tmp_path / "app.log.1")
    log.write_text("new\n")
    with open_file(file) as opened:
        assert opened.read() == b"old\n"


def test_deleted_file_is_not_mistaken_for_its_successor(tmp_path: Path) -> None:
    """A deleted file is an error, even if another file has its name."""
    log = tmp_path / "app.log"
    log.write_text("old\n")
    (file,) = Search([str(log)]).all().files
    successor = tmp_path / "successor"
    successor.write_text("new\n")
    successor.replace(log)
    with pytest.raises(FileNotFoundError, match="deleted or replaced"):
        open_file(file)


def test_nothing_is_taken_of_the_excluded_directory(tmp_path: Path) -> None:
    """Files in the excluded directory are reported as excluded, however they are found; a directory of the same name is
    not.
    """
    for folder in ("checkpoint", "checkpoint-logs"):
        (tmp_path / folder / "sub").mkdir(parents=True)
        (tmp_path / folder / "sub" / "a.log").write_text("one\n")
    (tmp_path / "link.log").symlink_to(tmp_path / "checkpoint" / "sub" / "a.log")
    (tmp_path / "linked").symlink_to(tmp_path / "checkpoint")
    paths = [str(tmp_path), f"{tmp_path}/*/sub/*", f"{tmp_path}/linked", f"{tmp_path}/checkpoint/sub/a.log"]
    found = Search(paths, exclude_directory=f"{tmp_path}/linked").all()
    assert [file.path for file in found.files] == [f"{tmp_path}/checkpoint-logs/sub/a.log"]
    assert (f"{tmp_path}/checkpoint/sub/a.log", "excluded") in found.skipped


def test_a_file_that_kept_its_name_is_opened_without_listing_its_folder_a_renamed_file_is_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that kept its name is opened without listing its folder; a renamed file is still found."""
    (tmp_path / "a.log").write_text("one\n")
    (file,) = Search([str(tmp_path)]).all().files
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (listed.append(path), scandir(path))[1])
    open_file(file).close()
    assert not listed
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    open_file(file).close()
    assert listed


def test_search_remembers_nothing_of_a_file_that_was_taken(tmp_path: Path) -> None:
    """A search keeps no path of a file that was taken, so memory does not grow with the number of files."""
    for number in range(300):
        folder = tmp_path / str(number // 10)
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.log").write_text("line\n")
    search = Search([str(tmp_path)])
    taken = 0
    while not search.ended:
        search.advance(files=50)
        taken += len(search.take().files)
    assert taken == 300
    assert sum(_paths_in(value, str(tmp_path)) for value in vars(search).values()) < 10
    assert search.found_bytes == 300 * len("line\n")


def _paths_in(value: object, begin: str) -> int:
    """Count the paths in a value or its containers."""
    if isinstance(value, str):
        return value.startswith(begin)
    return sum(_paths_in(item, begin) for item in value) if isinstance(value, (set, frozenset, dict, list)) else 0


def test_overlapping_directories_are_walked_once(tmp_path: Path) -> None:
    """Overlapping directories yield each file once; a hidden or linked inner directory is walked."""
    inner, hidden, link = tmp_path / "a" / "b", tmp_path / "a" / ".c", tmp_path / "a" / "d"
    for folder in (inner, hidden):
        folder.mkdir(parents=True)
        (folder / "x.log").write_text("line\n")
    link.symlink_to(inner)
    (tmp_path / "a" / "to-hidden").symlink_to(hidden / "x.log")
    expected = sorted(str(folder / "x.log") for folder in (inner, hidden, link))
    search = Search(map(str, (inner, tmp_path, hidden, tmp_path, link)))
    files: list[str] = []
    while not search.ended:
        search.advance(files=1)
        files += (file.path for file in search.take().files)
    assert sorted(files) == expected
    assert search.found_bytes == 3 * len("line\n")
    assert (str(tmp_path / "a" / "to-hidden"), f"link to {hidden / 'x.log'}") in search.skipped


def test_a_file_that_begins_with_nuls_as_after_copytruncate_is_not_binary(tmp_path: Path) -> None:
    """A file that begins with NULs, as after copytruncate, is not binary; one with only NULs is."""
    (tmp_path / "a.log").write_bytes(b"\0" * 50_000 + b"line\n")
    (tmp_path / "b.bin").write_bytes(b"\0" * 50_000)
    (tmp_path / "c.bin").write_bytes(b"\0" * 50_000 + b"x\0y")
    found = Search([str(tmp_path)]).all()
    assert [file.path for file in found.files] == [str(tmp_path / "a.log")]
