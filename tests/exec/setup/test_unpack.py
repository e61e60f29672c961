import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.errors import RunDirError
from dethpc.exec.setup.unpack import scratch_with_context, unpack


def archive(path: Path, *members: tuple) -> Path:
    """Members are (name, content) or (name, type, link target)."""
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            info = tarfile.TarInfo(member[0])
            if len(member) == 2:
                info.size, info.mode = len(member[1]), 0o6777
                tar.addfile(info, io.BytesIO(member[1]))
            else:
                info.type, info.linkname = member[1], member[2]
                tar.addfile(info)
    return path


def test_files_folders_and_links_arrive(tmp_path: Path) -> None:
    made = archive(
        tmp_path / "c.tgz", ("a/b/c.txt", b"deep"), ("a/link", tarfile.SYMTYPE, "b/c.txt"), ("hard", tarfile.LNKTYPE, "a/b/c.txt"),
        ("empty", tarfile.DIRTYPE, ""), ("./dot.txt", b"dot"), ("a/b/c2", b"1"), ("a/b/c2", b"2"),
    )  # fmt: skip
    into = tmp_path / "into"
    into.mkdir()
    unpack(str(made), str(into))
    assert (into / "a/link").read_bytes() == b"deep" == (into / "hard").read_bytes()
    assert (into / "a/b/c2").read_bytes() == b"2"
    assert (into / "empty").is_dir()
    assert (into / "dot.txt").exists()
    assert (into / "a/b/c.txt").stat().st_mode & 0o7777 == 0o755  # neither setuid nor writable by others


@pytest.mark.parametrize(
    "members",
    [
        [("../out", b"x")],
        [("/abs/out", b"x")],
        [("a/../../out", b"x")],
        [("link", tarfile.SYMTYPE, "/etc")],
        [("link", tarfile.SYMTYPE, "../out")],
        [("d/link", tarfile.SYMTYPE, "../../out")],
        [("hard", tarfile.LNKTYPE, "../out")],
        [("hard", tarfile.LNKTYPE, "/etc/passwd")],
        [("pipe", tarfile.FIFOTYPE, "")],
        [("device", tarfile.CHRTYPE, "")],
        [("d", tarfile.DIRTYPE, ""), ("d", b"x")],
        [("a/b", tarfile.SYMTYPE, "c/../.."), ("a/c", tarfile.SYMTYPE, "../a")],  # leads out once the second is there
        [
            ("x/y/link", tarfile.SYMTYPE, "../../x"),
            ("hard", tarfile.LNKTYPE, "x/y/link"),
        ],  # leads out from where it is then
        [("link", tarfile.SYMTYPE, "d"), ("d/e", b""), ("link/x", b"x")],
    ],
)
def test_nothing_lands_or_points_outside(tmp_path: Path, members: list) -> None:
    (tmp_path / "out").write_text("untouched")
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(RunDirError):
        unpack(str(archive(tmp_path / "c.tgz", *members)), str(into))
    assert (tmp_path / "out").read_text() == "untouched"


names = st.lists(st.sampled_from(["a", "b", "..", ".", "l"]), min_size=1, max_size=4).map("/".join)
members = st.lists(
    st.tuples(names, st.just(b"x"))
    | st.tuples(names, st.sampled_from([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE]), names),
    max_size=5,
)


@given(members)
@settings(max_examples=150, deadline=None)
def test_no_archive_reaches_outside(tmp_path_factory: pytest.TempPathFactory, made: list) -> None:
    base = tmp_path_factory.mktemp("u")
    into = base / "x" / "into"
    into.mkdir(parents=True)
    try:
        unpack(str(archive(base / "c.tgz", *made)), str(into))
    except (RunDirError, OSError):
        pass
    assert sorted(os.listdir(base)) == ["c.tgz", "x"]
    assert os.listdir(base / "x") == ["into"]
    for parent, folders, files in os.walk(into):
        for name in folders + files:
            assert os.path.realpath(os.path.join(parent, name)).startswith(str(into.resolve()))


def test_the_size_is_bounded(tmp_path: Path) -> None:
    made = archive(tmp_path / "c.tgz", ("a", b"x" * 1000), ("b", b"x" * 1000))
    for bounds in ({"max_bytes": 1500}, {"max_members": 1}):
        into = tmp_path / f"into{len(os.listdir(tmp_path))}"
        into.mkdir()
        with pytest.raises(RunDirError, match="too large"):
            unpack(str(made), str(into), **bounds)


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b broken gzip"])
def test_what_is_no_archive_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.tgz").write_bytes(content)
    with pytest.raises(RunDirError, match="cannot be unpacked"):
        unpack(str(tmp_path / "c.tgz"), str(tmp_path))


def test_a_truncated_archive_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    made = archive(tmp_path / "c.tgz", ("a", os.urandom(100_000)))
    made.write_bytes(made.read_bytes()[:50_000])
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    (tmp_path / "scratch").mkdir()
    with pytest.raises(RunDirError):
        scratch_with_context("p", [str(tmp_path / "scratch")], str(tmp_path), str(made), digest)
    assert os.listdir(tmp_path / "scratch") == []
