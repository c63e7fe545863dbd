"""services/folder: what is in the folder is shown, and nothing else, however one asks."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.services import folder as folders
from polydomo.services.folder import Folder, NotShared

SECRET = b"not to be seen"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The shared folder, with a neighbour that is not."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_bytes(SECRET)
    shared = tmp_path / "shared"
    (shared / "sub/deep").mkdir(parents=True)
    (shared / "a.txt").write_bytes(b"aaa")
    (shared / "sub/b.txt").write_bytes(b"bb")
    (shared / "sub/deep/c.txt").write_bytes(b"c")
    (shared / ".hidden").write_bytes(b"h")
    return shared


@pytest.fixture
def folder(place: Path) -> Folder:
    return Folder(str(place))


def content(folder: Folder, url: str) -> bytes:
    file = folder.open(url)
    try:
        return file.read(0, 1000)
    finally:
        file.close()


@pytest.mark.parametrize(
    "url", ["nf://sub/b.txt", "nf:///sub/b.txt", "nf://sub//b.txt", "nf://./sub/./b.txt", "nf://sub\\b.txt"]
)
def test_a_file_by_its_url(folder: Folder, url: str) -> None:
    assert content(folder, url) == b"bb"


@pytest.mark.parametrize(
    "url",
    [
        "nf://../outside/secret",
        "nf://sub/../../outside/secret",
        "nf://sub/../a.txt",
        "nf://..",
        "nf://..\\outside\\secret",
        "nf:////../outside/secret",
        "/etc/passwd",
        "file:///etc/passwd",
        "nf:/a.txt",
        "NF://a.txt",
        "",
        "nf://a.txt\0",
        "nf://\0",
        "nf://\ud800",
        "nf://" + "a/" * 5000,
        "nf://" + "a" * 300,
        "nf://a.txt/",
        "nf://a.txt/x",
        "nf://nobody",
        "nf://sub",
        "nf://",
        None,
        7,
        [],
    ],
)
def test_what_is_no_file_here(folder: Folder, url: str) -> None:
    if url == "nf://a.txt/":
        assert content(folder, url) == b"aaa"  # a slash too many
        return
    with pytest.raises(NotShared):
        folder.open(url)


def test_links_may_lead_anywhere_inside(folder: Folder, place: Path) -> None:
    (place / "one").symlink_to("a.txt")
    (place / "sub/up").symlink_to("../a.txt")
    (place / "dir").symlink_to("sub/deep")
    (place / "chain").symlink_to("dir/../b.txt")
    (place / "round").symlink_to("./sub/../sub/./deep//c.txt")
    assert content(folder, "nf://one") == content(folder, "nf://sub/up") == b"aaa"
    assert content(folder, "nf://dir/c.txt") == content(folder, "nf://round") == b"c"
    assert content(folder, "nf://chain") == b"bb"
    assert [entry.name for entry in folder.entries("nf://dir")] == ["c.txt"]


@pytest.mark.parametrize(
    "target",
    ["../outside/secret", "sub/../../outside/secret", "..", "../shared/a.txt", "/etc/passwd", "loop", "dead"],
)
def test_links_lead_nowhere_else(folder: Folder, place: Path, target: str) -> None:
    """Not even back in by the folder's own name: from inside there is no way to know it."""
    (place / "loop").symlink_to("loop")
    (place / "link").symlink_to(target)
    (place / "sub/dir").symlink_to("../../outside")
    for url in ("nf://link", "nf://link/secret", "nf://sub/dir/secret", "nf://loop"):
        with pytest.raises(NotShared):
            folder.open(url)
        with pytest.raises(NotShared):
            folder.entries(url)
    names = [entry.name for entry in folder.entries("nf://")]
    assert names == ["a.txt", "sub"]
    assert folder.walk("nf://") == ["nf://a.txt", "nf://sub/b.txt", "nf://sub/deep/c.txt"]


def test_no_devices_pipes_or_sockets(folder: Folder, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(place / "pipe")
    monkeypatch.chdir(place)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("sock")
        for name in ("pipe", "sock"):
            with pytest.raises(NotShared, match="is no file"):
                folder.open(f"nf://{name}")
        assert [entry.name for entry in folder.entries("nf://")] == ["a.txt", "sub"]
    if os.path.exists("/dev/null"):
        with pytest.raises(NotShared, match="is no file"):
            Folder("/dev").open("nf://null")


def test_entries_say_what_they_are(folder: Folder, place: Path) -> None:
    os.utime(place / "a.txt", (1000, 1000))
    rows = {entry.name: entry for entry in folder.entries("nf://")}
    assert rows["a.txt"] == ("a.txt", "file", 3, 1000.0)
    assert rows["sub"].kind == "folder"
    with pytest.raises(NotShared, match="is no folder"):
        folder.entries("nf://a.txt")
    with pytest.raises(NotShared, match="not found"):
        folder.walk("nf://nobody")


def test_names_that_are_no_text_are_left_out(folder: Folder, place: Path) -> None:
    Path(os.fsdecode(os.fsencode(place) + b"/\xff")).write_bytes(b"")
    assert "\udcff" not in [entry.name for entry in folder.entries("nf://")]


def test_too_many_names(folder: Folder, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_LISTED", 2)
    with pytest.raises(NotShared, match="more than 2"):
        folder.entries("nf://")
    with pytest.raises(NotShared, match="more than 2"):
        folder.walk("nf://")


def test_details_and_their_cache(folder: Folder, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(place / "a.txt", (1000, 1000))
    details = folder.details("nf://a.txt")
    assert details.sha256 == hashlib.sha256(b"aaa").hexdigest()
    assert details.md5hash == hashlib.md5(b"aaa").hexdigest()
    assert (details.size_bytes, details.modified) == (3, 1000.0)
    reads: list[int] = []
    monkeypatch.setattr(folders.os, "pread", lambda *args: reads.append(1) or b"")
    assert folder.details("nf://a.txt") == details
    assert not reads
    monkeypatch.undo()
    (place / "a.txt").write_bytes(b"AAA")
    assert folder.details("nf://a.txt").sha256 == hashlib.sha256(b"AAA").hexdigest()
    assert folder.details("nf://a.txt").etag != details.etag


def test_what_was_changed_just_now_is_hashed_each_time(folder: Folder, place: Path) -> None:
    """Two changes within one tick of the file system's clock look the same."""
    path = place / "a.txt"
    status = path.stat()
    folder.details("nf://a.txt")
    path.write_bytes(b"bbb")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert folder.details("nf://a.txt").sha256 == hashlib.sha256(b"bbb").hexdigest()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotShared, match="cannot be read"):
        Folder(str(tmp_path / "gone")).open("nf://a")


def test_nothing_stays_open(folder: Folder, place: Path) -> None:
    (place / "link").symlink_to("sub/deep/../b.txt")
    (place / "evil").symlink_to("../outside/secret")
    before = len(os.listdir("/proc/self/fd"))
    for url in ("nf://link", "nf://evil", "nf://nobody", "nf://sub", "nf://a.txt/x"):
        for ask in (folder.open, folder.entries, folder.walk, folder.details):
            try:
                found = ask(url)
            except NotShared:
                continue
            if isinstance(found, folders.OpenFile):
                found.close()
    assert len(os.listdir("/proc/self/fd")) == before


names = st.sampled_from(
    ["a.txt", "sub", "deep", "..", ".", "", "link", "up", "out", "secret", "outside", "shared", "\0"]
)
targets = st.sampled_from(
    [
        "..",
        "../..",
        "../outside",
        "sub",
        "sub/deep",
        "../shared",
        "a.txt",
        ".",
        "../../outside/secret",
        "/",
        "/tmp",
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(names, max_size=6),
    st.dictionaries(st.sampled_from(["link", "sub/up", "sub/deep/out", "out"]), targets),
    st.sampled_from(["/", "\\", "//"]),
)
def test_no_way_leads_out(
    tmp_path_factory: pytest.TempPathFactory, path: list[str], links: dict[str, str], slash: str
) -> None:
    """Any path over any links: what can be opened or listed lies in the folder."""
    root = tmp_path_factory.mktemp("confined")
    (root / "outside").mkdir()
    (root / "outside/secret").write_bytes(SECRET)
    shared = root / "shared"
    (shared / "sub/deep").mkdir(parents=True)
    (shared / "a.txt").write_bytes(b"fine")
    (shared / "sub/deep/a.txt").write_bytes(b"fine")
    for name, target in links.items():
        (shared / name).symlink_to(target)
    folder = Folder(str(shared))
    url = "nf://" + slash.join(path)
    try:
        assert content(folder, url) == b"fine"
    except NotShared:
        pass
    try:
        listed = {entry.name for entry in folder.entries(url)}
    except NotShared:
        pass
    else:
        assert not listed & {"outside", "shared", "secret"}
    for found in folder.walk("nf://"):
        assert content(folder, found) == b"fine"


def test_a_folder_that_becomes_a_link_meanwhile(folder: Folder, place: Path) -> None:
    """A folder is swapped for a link that leads out, again and again, while the path is resolved."""
    stop = threading.Event()
    swap = place / "swap"
    (swap).mkdir()
    (swap / "secret").write_bytes(b"fine")
    (place / "evil").symlink_to("../outside")

    def exchange() -> None:
        while not stop.is_set():
            os.rename(swap, place / "aside")
            os.rename(place / "evil", swap)
            os.rename(swap, place / "evil")
            os.rename(place / "aside", swap)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(3000):
            try:
                assert content(folder, "nf://swap/secret") == b"fine"
            except NotShared:
                pass
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    "url",
    [
        "nf://.hidden",
        "nf://sub/.env",
        "nf://.git/config",
        "nf://.git//./config",
        "nf://\\.git\\config",
        "nf://sub/deep/.a/b/c",
        "nf://link",
        "nf://sub/linked",
        "nf://gitlink/config",
        "nf://...",
    ],
)
def test_hidden_files_are_not_served(folder: Folder, place: Path, url: str) -> None:
    """By no name, in no hidden folder, and through no link."""
    for name in (".hidden", "sub/.env", ".git/config", "sub/deep/.a/b/c", "..."):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(SECRET)
    (place / "link").symlink_to(".hidden")
    (place / "sub/linked").symlink_to("../.git/config")
    (place / "gitlink").symlink_to(".git")
    for ask in (folder.open, folder.details, folder.entries, folder.walk):
        with pytest.raises(NotShared, match="file not found"):
            ask(url)


def test_hidden_files_and_links_to_them_are_not_listed(folder: Folder, place: Path) -> None:
    (place / ".git").mkdir()
    (place / ".git/config").write_bytes(SECRET)
    (place / "link").symlink_to(".hidden")
    (place / "gitlink").symlink_to(".git")
    assert [entry.name for entry in folder.entries("nf://")] == ["a.txt", "sub"]
    assert folder.walk("nf://") == ["nf://a.txt", "nf://sub/b.txt", "nf://sub/deep/c.txt"]


def test_a_shared_folder_may_itself_be_in_a_hidden_one(tmp_path: Path) -> None:
    (tmp_path / ".share/files").mkdir(parents=True)
    (tmp_path / ".share/files/a").write_bytes(b"a")
    assert content(Folder(str(tmp_path / ".share/files")), "nf://a") == b"a"
