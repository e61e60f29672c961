"""The archive of a folded trial reads as the directories did, from any place, and whatever is wrong with it is told."""

from __future__ import annotations

import errno
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.rundir import archives, fold_writer, folded, journal, lines
from dethpc.rundir.files import exists, names, open_kept, open_regular, read_at, read_json, status, walk
from dethpc.rundir.fold_writer import Source, Unfit, look
from dethpc.rundir.home import Home
from dethpc.rundir.lines import blocks, blocks_backward
from tests.example_counts import examples


def fold(runs: Path, files: dict[str, bytes], last: str = "7.12.2") -> Path:
    """An archive of these files."""
    sources = []
    for path, content in files.items():
        (runs / path).parent.mkdir(parents=True, exist_ok=True)
        (runs / path).write_bytes(content)
        sources.append(Source(path, runs, path))
    archive = runs / archives.archive_of(last)
    for piece in (fold_writer.write(archive, sources, []), fold_writer.prove(archive, files)):
        for _ in piece:
            pass
    for path in files:
        (runs / path).unlink()
    return archive


@settings(max_examples=examples(60), deadline=None)
@given(content=st.binary(max_size=1000), at=st.integers(0, 1100), size=st.integers(0, 1100), block=st.integers(1, 300))
def test_every_part_of_a_file_is_what_it_was(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, at: int, size: int, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folded, "BLOCK", block)
        archive = fold(tmp_path_factory.mktemp("runs"), {"7.12.1/a/b": content, "7.12.2/c": b"x"})
        with open_regular(archive / "7.12.1" / "a" / "b") as file:
            assert read_at(file, size, at) == content[at : at + size]
            file.seek(0)
            assert file.read() == content
        assert status(archive / "7.12.1" / "a" / "b").st_size == len(content)
        assert b"".join(text for _, text in blocks(archive / "7.12.1/a/b") if text) in content
        with zipfile.ZipFile(archive) as opened:
            assert opened.testzip() is None


def test_lines_come_from_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded, "BLOCK", 1000)
    written = [f"line {number}\n".encode() for number in range(3000)]
    log = fold(tmp_path, {"7.12.1/log": b"".join(written)}) / "7.12.1" / "log"
    assert b"".join(text for _, text in blocks(log)) == b"".join(written)
    last = next(text for _, text in blocks_backward(log))
    assert last.endswith(b"".join(written[-2:]))


@pytest.mark.parametrize("read", [blocks, blocks_backward])
def test_from_either_end_each_block_is_inflated_once(
    read: Callable[[Path], Iterator[tuple[int, bytes]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces end with lines, and not where blocks do."""
    monkeypatch.setattr(folded, "BLOCK", 1 << 17)
    monkeypatch.setattr(lines, "MOST", 1 << 17)
    content = b"".join(b"line %d of the log\n" % number for number in range(50_000))
    log = fold(tmp_path, {"7.12.1/log": content}) / "7.12.1" / "log"
    inflated: list[int] = []
    inflate = folded._Member._read

    def counted(member: folded._Member, block: folded.Block) -> bytes:
        inflated.append(block.begin)
        return inflate(member, block)

    monkeypatch.setattr(folded._Member, "_read", counted)
    pieces = [text for _, text in read(log)]
    assert b"".join(pieces if read is blocks else reversed(pieces)) == content
    assert sorted(inflated) == list(range(0, len(content), 1 << 17))


def test_a_path_through_an_archive_is_read_as_any_other(tmp_path: Path) -> None:
    archive = fold(
        tmp_path, {"7.12.1/spec.json": b'{"a": 1}', "7.12.2/attempts/0/logs/node-0.log": b"", "7.12.2/claim": b"{}"}
    )
    assert read_json(archive / "7.12.1" / "spec.json") == {"a": 1}
    assert read_json(archive / "7.12.1" / "claim") is None
    assert exists(archive / "7.12.2" / "attempts" / "0") and not exists(archive / "7.12.3")
    assert names(archive / "7.12.2") == ["attempts", "claim"] and names(archive / "7.12.9") == []
    assert list(walk(archive / "7.12.2")) == ["attempts/0/logs/node-0.log", "claim"]
    assert journal.read(archive / "7.12.2" / "attempts" / "0" / "journal.jsonl") == ([], 0)
    with pytest.raises(IsADirectoryError):
        open_regular(archive / "7.12.2" / "attempts")
    with pytest.raises(NotADirectoryError):
        open_regular(Path(__file__) / "x")


def test_a_home_knows_where_what_a_run_has_left_is(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    home.run("7.12.3").make()
    archive = fold(home.runs, {"7.12.1/a": b"", "7.12.2/a": b""})
    for folder in ("7.12.1", "7.12.2"):
        (home.runs / folder).rmdir()
    assert home.find("7.12.1").path == archive / "7.12.1" and home.find("7.12.2").path == archive / "7.12.2"
    assert home.find("7.12.3").path == home.runs / "7.12.3" and home.find("7.1.1").path == home.runs / "7.1.1"
    with open_kept(home.runs / "7.12.2" / "a") as file:  # of somebody who asked before it was folded
        assert file.read() == b""
    later = fold(home.runs, {"7.12.1/b": b""}, "7.12.4")  # by another master
    assert home.find("7.12.4").path == later / "7.12.4"


def test_names_say_which_runs_are_there() -> None:
    assert archives.runs_of("7.12.3.zip") == ["7.12.1", "7.12.2", "7.12.3"]
    assert archives.runs_of("7.12.3") == archives.runs_of("7.12.3.zip.part") == archives.runs_of("x.zip") == []
    assert archives.runs_of("7.12.9999999999.zip") == []
    assert all(map(archives.belongs_to_trial, ("7.12.3", "7.12.3.zip", "7.12.3.zip.part", "7.12.3.going")))
    assert not any(map(archives.belongs_to_trial, ("gc-1.1", "rendered-1", "7.12.3.zip.old")))


def test_a_damaged_block_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded, "BLOCK", 1000)
    archive = fold(tmp_path, {"7.12.1/log": os.urandom(3000), "7.12.1/other": b"whole"})
    damaged = archive.read_bytes()
    with zipfile.ZipFile(archive) as opened:
        at = opened.getinfo("7.12.1/log/000001").header_offset + 200
    archive.write_bytes(damaged[:at] + bytes([damaged[at] ^ 1]) + damaged[at + 1 :])
    assert read_json(archive / "7.12.1" / "none") is None
    with open_regular(archive / "7.12.1" / "other") as file:
        assert file.read() == b"whole"
    with open_regular(archive / "7.12.1" / "log") as file:
        assert len(read_at(file, 1000, 0)) == len(read_at(file, 1000, 2000)) == 1000
        with pytest.raises(OSError, match="damaged") as raised:
            read_at(file, 1000, 1000)
        assert raised.value.errno == errno.EIO


@given(content=st.binary(max_size=400))
@settings(max_examples=examples(40), deadline=None)
def test_what_is_no_archive_is_told(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    archive = tmp_path_factory.mktemp("runs") / "7.12.1.zip"
    archive.write_bytes(content)
    with pytest.raises(OSError, match="damaged"):
        open_regular(archive / "7.12.1" / "a")


def test_a_link_or_a_pipe_in_the_place_of_an_archive_is_not_followed(tmp_path: Path) -> None:
    fold(tmp_path, {"7.12.1/a": b"1"}, "7.12.1").rename(tmp_path / "other")
    (tmp_path / "7.12.1.zip").symlink_to("other")
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(tmp_path / "7.12.1.zip" / "7.12.1" / "a")
    (tmp_path / "7.12.1.zip").unlink()
    os.mkfifo(tmp_path / "7.12.1.zip")
    with pytest.raises(OSError, match="no regular file"):
        open_regular(tmp_path / "7.12.1.zip" / "7.12.1" / "a")


def test_what_is_no_file_and_has_an_archives_name_hides_no_run(tmp_path: Path) -> None:
    (tmp_path / "7.12.1").mkdir()
    (tmp_path / "7.12.1" / "a").write_text("live")
    os.mkfifo(tmp_path / "7.12.1.zip")
    (tmp_path / "7.12.2.zip").symlink_to("/dev/zero")
    (tmp_path / "7.12.3.zip").mkdir()
    known = archives.Archives(tmp_path)
    assert known.last(archives.Trial(7, 12)) == 0 and known.of("7.12.1") is None


def test_links_and_pipes_in_a_directory_are_seen_and_not_opened(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("x")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "away").symlink_to("/")
    os.mkfifo(tmp_path / "in" / "pipe")
    found = look(tmp_path)
    assert list(found.files) == ["in/file"]
    assert found.others == {"link": "a symbolic link", "away": "a symbolic link", "in/pipe": "a pipe"}
    (tmp_path / "in" / "file").unlink()
    (tmp_path / "in" / "file").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        Source("7.12.1/in/file", tmp_path, "in/file").open()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_another_users_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    os.chown(tmp_path / "file", 12345, -1)
    with pytest.raises(Unfit, match="belongs to user 12345"):
        look(tmp_path)
