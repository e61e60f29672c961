"""A tree whose parts are changed by somebody else at the worst moment: nothing outside is read, written or removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from pathlib import Path
from typing import Callable, Iterator, Optional

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dethpc.rundir import tree as rundir_tree
from dethpc.rundir.tree import LeadsOut, Tree, remove, stays
from tests.example_counts import examples

SECRET = b"of somebody else"


class Swapper(threading.Thread):
    """Has ``place`` a folder and a link to ``outside`` in turns, as fast as it can, until the test has seen enough."""

    def __init__(self, place: Path, outside: Path) -> None:
        super().__init__()
        self.place, self.outside, self.turns, self.over = place, outside, 0, threading.Event()

    def run(self) -> None:
        folder, link = self.place.with_name("a-folder"), self.place.with_name("a-link")
        while not self.over.is_set():
            try:
                link.symlink_to(self.outside)
                os.rename(self.place, folder)
                os.rename(link, self.place)
                os.unlink(self.place)
                os.rename(folder, self.place)
            except OSError:  # the other side was faster: begin anew
                with contextlib.suppress(OSError):
                    link.unlink(missing_ok=True)
                    shutil.rmtree(folder, ignore_errors=True)
                    if self.place.is_symlink():
                        self.place.unlink(missing_ok=True)
                    self.place.mkdir(exist_ok=True)
                    (self.place / "file").write_bytes(b"mine")
            self.turns += 1


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    (place / "deep").mkdir(parents=True)
    (place / "file").write_bytes(SECRET)
    (place / "deep" / "file").write_bytes(SECRET)
    return place


@pytest.fixture
def swapped(tmp_path: Path, outside: Path) -> Iterator[Swapper]:
    """``root/a/b`` is swapped; ``root`` is the tree."""
    place = tmp_path / "root" / "a" / "b"
    place.mkdir(parents=True)
    (place / "file").write_bytes(b"mine")
    swapper = Swapper(place, outside)
    swapper.start()
    yield swapper
    swapper.over.set()
    swapper.join()
    assert (outside / "file").read_bytes() == (outside / "deep/file").read_bytes() == SECRET
    assert sorted(os.listdir(outside)) == ["deep", "file"]


def read(tree: Tree) -> None:
    with tree.read("a/b/file") as file:
        assert file.read() == b"mine"


def write(tree: Tree) -> None:
    with tree.write("a/b/file") as file:
        file.write(b"mine")


def list_all(tree: Tree) -> None:
    assert "a/b/deep/" not in dict(tree.walk())


@pytest.mark.parametrize(
    "use",
    [
        read,
        write,
        list_all,
        lambda tree: tree.make("a/b/deep/new"),
        lambda tree: tree.remove("a/b/file"),
        lambda tree: tree.remove("a/b"),
        lambda tree: tree.chmod("a/b/file", 0o600),
        lambda tree: tree.replace("a/b/file", "a/b/other"),
        lambda tree: tree.symlink("a/b/link", "x"),
    ],
    ids=["read", "write", "walk", "make", "remove-file", "remove-folder", "chmod", "replace", "symlink"],
)
def test_a_folder_that_becomes_a_link_leads_nowhere(
    swapped: Swapper, tmp_path: Path, use: Callable[[Tree], None]
) -> None:
    uses = 0
    while uses < 200 or swapped.turns < 200:
        uses += 1
        with Tree(tmp_path / "root") as tree:
            try:
                use(tree)
            except OSError:
                continue  # refused, or not there at the moment


@pytest.mark.slow
def test_a_tree_whose_root_becomes_a_link_is_removed_or_left(swapped: Swapper) -> None:
    while swapped.turns < 500:
        remove(swapped.place)


names = st.sampled_from(["a", "b", "c", "..", "."])
targets = st.lists(names, min_size=1, max_size=5).map("/".join)


@given(
    st.dictionaries(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join), targets, max_size=5),
    targets,
)
@example({"a": "a", "b": "..", "c": "a/..", "c/b/a": "a"}, "a")
@settings(max_examples=examples(100), deadline=None)
def test_whatever_links_there_are_nothing_outside_is_reached(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str], path: str
) -> None:
    base = tmp_path_factory.mktemp("t")
    root = base / "x" / "root"
    root.mkdir(parents=True)
    for place, target in links.items():
        above = Path(os.path.realpath((root / place).parent))
        if os.path.realpath(above) != str(above):  # behind a link to itself, it was not resolved to its end
            continue
        if above == root or root in above.parents:
            with contextlib.suppress(OSError):
                above.mkdir(parents=True, exist_ok=True)
                (above / Path(place).name).symlink_to(target)
    with Tree(root) as tree:
        with contextlib.suppress(OSError), tree.write(path) as file:
            file.write(b"x")
        list(tree.walk())
        with contextlib.suppress(OSError):
            tree.make(path)
        with contextlib.suppress(OSError):
            tree.remove(path)
    assert os.listdir(base) == ["x"] and os.listdir(base / "x") == ["root"]


@given(targets, st.lists(st.sampled_from("abc"), min_size=1, max_size=3))
@settings(max_examples=examples(200), deadline=None)
def test_a_link_that_stays_does_so_whatever_the_folders_on_its_way_become(target: str, path: list[str]) -> None:
    """Each name that it goes through may become a link to anything in the tree: the worst is one to its root."""
    if not stays("/".join(path), target):
        return
    depth, lowest = len(path) - 1, len(path) - 1
    for part in target.split("/"):
        depth = depth - 1 if part == ".." else depth if part in ("", ".") else 0
        lowest = min(lowest, depth)
    assert lowest >= 0


def test_links_inside_are_followed_and_those_that_lead_out_are_not(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "root"
    (root / "steps" / "10").mkdir(parents=True)
    (root / "steps" / "10" / "w").write_bytes(b"weights")
    (root / "latest").symlink_to("steps/10")
    (root / "out").symlink_to("../outside")
    (root / "absolute").symlink_to(root / "steps")
    (root / "again").symlink_to(".")
    (root / "nowhere").symlink_to("nothing")
    with Tree(root) as tree:
        with tree.read("latest/w") as file:
            assert file.read() == b"weights"
        found = dict(tree.walk())
        assert {"steps/10/w", "latest/w", "out", "absolute", "again/", "nowhere"} <= set(found)
        assert not any(path.startswith(("out/", "absolute/", "again/a")) for path in found)
        for path in ("out/file", "out", "absolute/10/w", "../outside/file", "/etc/passwd"):
            with pytest.raises(LeadsOut), tree.read(path):
                pass
        for path in ("latest", "out", "steps", "never"):
            tree.remove(path)
    assert sorted(os.listdir(root)) == ["absolute", "again", "nowhere"]
    assert (outside / "file").read_bytes() == SECRET
    with pytest.raises(LeadsOut):
        Tree(tmp_path / "root" / "again")


def test_a_pipe_keeps_no_reader_and_makes_room_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with Tree(tmp_path) as tree:
        with pytest.raises(OSError, match="no regular file"), tree.read("pipe"):
            pass
        with tree.write("pipe") as file:
            file.write(b"x")
    assert (tmp_path / "pipe").read_bytes() == b"x"


def test_a_file_that_has_another_name_is_not_written_through_it(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "root").mkdir()
    os.link(outside / "file", tmp_path / "root" / "planted")
    with Tree(tmp_path / "root") as tree, tree.write("planted") as file:
        file.write(b"mine")
    assert (outside / "file").read_bytes() == SECRET
    assert (tmp_path / "root" / "planted").read_bytes() == b"mine"


def test_a_file_that_grows_stays_the_same_file(tmp_path: Path) -> None:
    """TensorBoard reads on where it was."""
    numbers = set()
    with Tree(tmp_path) as tree:
        for content in (b"a", b"ab"):
            with tree.write("events") as file:
                file.write(content)
            numbers.add((tmp_path / "events").stat().st_ino)
    assert len(numbers) == 1


@pytest.mark.slow
def test_a_tree_of_any_depth_and_without_permissions_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", 0o700, dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(os.open("file", os.O_CREAT, 0o400, dir_fd=inner))
        os.fchmod(here, 0o000)
        os.close(here)
        here = inner
    os.close(here)
    remove(top)
    assert not top.exists()


# --- the same, with the change at the very moment between a look and the use


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree ``root`` with ``here/file`` and ``file``; each is a link to ``outside`` by the time at which it was looked at."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside):
        (folder / "here").mkdir(parents=True)
        (folder / "here" / "file").write_bytes(SECRET if folder is outside else b"mine")
        (folder / "file").write_bytes(SECRET if folder is outside else b"mine")

    def plant(name: str) -> None:
        if name in ("here", "file") and not (root / name).is_symlink():
            os.rename(root / name, tmp_path / f"old {name}")
            (root / name).symlink_to(outside / name)

    look, let_in = rundir_tree._target, rundir_tree._let_in

    def target(name: str, folder: int) -> Optional[str]:
        found = look(name, folder)
        plant(name)
        return found

    def enter(name: str, folder: Optional[int]) -> None:
        let_in(name, folder)
        plant(name)

    monkeypatch.setattr(rundir_tree, "_target", target)
    monkeypatch.setattr(rundir_tree, "_let_in", enter)
    return root


@pytest.mark.parametrize("path", ["file", "here/file"])
def test_what_becomes_a_link_once_it_was_looked_at_is_not_read(planted: Path, path: str) -> None:
    with Tree(planted) as tree, pytest.raises(OSError), tree.read(path) as file:
        assert file.read() != SECRET


def test_what_becomes_a_link_once_it_was_looked_at_is_not_written(planted: Path, tmp_path: Path) -> None:
    with Tree(planted) as tree, pytest.raises(OSError), tree.write("here/file") as file:
        file.write(b"theirs")
    assert (tmp_path / "outside" / "here" / "file").read_bytes() == SECRET


def test_a_folder_that_becomes_a_link_once_it_was_looked_at_is_not_emptied(planted: Path, tmp_path: Path) -> None:
    remove(planted)
    assert (tmp_path / "outside" / "here" / "file").read_bytes() == SECRET
