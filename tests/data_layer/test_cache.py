"""A dataset on one node: made once, shared, checked, bounded; whatever happens to who makes it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dethpc.data_layer import Cache, Key, Place, Records, place
from dethpc.data_layer.cache import held, make_space
from dethpc.data_layer.entry import Entry
from dethpc.errors import DataLayerError, DatasetDamaged
from tests.data_layer.conftest import Making
from tests.waiting import LONG_ENOUGH, wait_until

ROOT = Path(__file__).parents[2]
KEY = Key.of("numbers", "v1")

MAKER = """
import os, sys, time
from pathlib import Path
from dethpc.data_layer import Cache, Key, Place

root, ledger, go, count = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

def records():
    with open(ledger, "a") as file:
        file.write(f"{os.getpid()}\\n")
    for n in range(count):
        yield n, os.urandom(1 << 20)
        while n == count - 2 and not os.path.exists(go):
            time.sleep(0.01)

found = Cache(Place(root, 1 << 40)).records(Key.of("numbers", "v1"), records)
print(sum(record[0] for record in found), flush=True)
"""


def start(root: Path, ledger: Path, go: Path, count: int = 40) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MAKER, str(root), str(ledger), str(go), str(count)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def data_of(root: Path, key: Key = KEY) -> Path:
    return root / key.folder / "data" / "data.mdb"


def damage(root: Path, marker: bytes, key: Key = KEY) -> None:
    """Change one byte of the record that holds ``marker``, without leaving a trace in the file's times."""
    path = data_of(root, key)
    text, before = bytearray(path.read_bytes()), path.stat()
    assert text.count(marker) == 1
    text[text.index(marker)] ^= 1
    with path.open("r+b") as file:
        file.write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_it_is_made_once_and_read_in_its_order(cache: Cache, root: Path) -> None:
    making = Making("a", ("b", 2), {"c": [3]})
    one, two = cache.records(KEY, making), Cache(Place(root)).records(KEY, making)
    assert list(one) == list(two) == ["a", ("b", 2), {"c": [3]}] and making.calls == 1
    assert (len(one), one[-1], one[1]) == (3, {"c": [3]}, ("b", 2))
    for wrong in (3, -4):
        with pytest.raises(IndexError, match="3 records"):
            one[wrong]


def test_another_version_is_another_dataset(cache: Cache) -> None:
    old, new = Making("old"), Making("new")
    assert list(cache.records(KEY, old)) == ["old"]
    assert list(cache.records(Key.of("numbers", "v2"), new)) == ["new"]


def test_two_processes_make_it_once(root: Path, tmp_path: Path) -> None:
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    both = [start(root, ledger, go) for _ in range(2)]
    wait_until(lambda: ledger.exists())
    go.touch()
    for process in both:
        out, err = process.communicate(timeout=LONG_ENOUGH)
        assert out == f"{sum(range(40))}\n", err
    assert len(ledger.read_text().splitlines()) == 1


def test_a_killed_maker_leaves_nothing_broken_and_the_next_makes_it(root: Path, tmp_path: Path, cache: Cache) -> None:
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    killed = start(root, ledger, go)
    wait_until(lambda: any(file.stat().st_size > 16 << 20 for file in root.glob("*/building-*/data.mdb")))
    waits = start(root, ledger, go)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert Entry(root, KEY).lease() is None
    go.touch()
    out, err = waits.communicate(timeout=LONG_ENOUGH)
    assert out == f"{sum(range(40))}\n", err
    assert len(ledger.read_text().splitlines()) == 2
    assert not list(root.glob("*/building-*")), "what the killed one had written is gone"


def test_a_maker_that_fails_leaves_nothing(cache: Cache, root: Path) -> None:
    def fails() -> Any:
        yield 1
        raise RuntimeError("no such image")

    with pytest.raises(RuntimeError, match="no such image"):
        cache.records(KEY, fails)
    with pytest.raises(DataLayerError, match="no records"):
        cache.records(KEY, Making())
    assert [path.name for path in root.glob("*/*")] == ["lock"]
    assert list(cache.records(KEY, Making(1))) == [1]


def test_without_lmdb_it_says_what_to_install(cache: Cache, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(ImportError, match=r"pip install 'dethpc\[data_layer\]'"):
        cache.records(KEY, Making(1))
    assert not list(root.iterdir())


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_damaged_record_is_made_again_while_it_is_read(
    cache: Cache, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    making = Making(*(f"marked-{n}" for n in range(100)))
    records = cache.records(KEY, making)
    damage(root, b"marked-60")
    assert records[59] == "marked-59" and making.calls == 1
    assert records[60] == "marked-60" and making.calls == 2
    assert "record 60" in caplog.text and list(records) == list(making.records)
    assert list(Cache(Place(root)).records(KEY, making)) == list(making.records) and making.calls == 2


def test_what_is_made_again_must_be_as_long(cache: Cache, root: Path) -> None:
    making = Making("marked-0", "marked-1")
    records = cache.records(KEY, making)
    damage(root, b"marked-1")
    making.records = ("marked-0",)
    with pytest.raises(DatasetDamaged, match="has 1 records now instead of 2"):
        records[1]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_is_found_before_it_is_read(cache: Cache, root: Path, data: Any) -> None:
    """Of a file that was touched, or since the machine has started: a damaged page of LMDB's own could end the process."""
    making = Making(*range(50))
    cache.records(KEY, making)
    path = data_of(root)
    text = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del text[data.draw(st.integers(0, len(text) - 1)) :]
    else:
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(text)
    calls = making.calls
    assert list(cache.records(KEY, making)) == list(range(50)) and making.calls == calls + 1


@pytest.mark.parametrize("what", ["about.json", "data.mdb"])
def test_a_missing_or_empty_file_is_damage(cache: Cache, root: Path, what: str) -> None:
    making = Making(1, 2)
    for change in (Path.unlink, lambda path: path.write_bytes(b"")):
        cache.records(KEY, making)
        calls = making.calls
        change(data_of(root).with_name(what))
        assert list(cache.records(KEY, making)) == [1, 2] and making.calls == calls + 1


def test_a_copy_in_another_process_says_damage_and_cannot_mend_it(cache: Cache, root: Path) -> None:
    records: Records = pickle.loads(pickle.dumps(cache.records(KEY, Making("marked-0", "marked-1"))))
    assert records[0] == "marked-0"
    damage(root, b"marked-1")
    with pytest.raises(DatasetDamaged, match="start the trial again"):
        records[1]


def test_a_child_and_other_threads_read_what_is_open(cache: Cache) -> None:
    records = cache.records(KEY, Making(*range(500)))
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(sum(records))) for _ in range(4)]
    for thread in threads:
        thread.start()
    child = os.fork()
    if not child:
        os._exit(0 if sum(records) == sum(range(500)) else 1)
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0 and found == [sum(range(500))] * 4


# --- room -------------------------------------------------------------------------------------------------------------


def size_of(root: Path, key: Key) -> int:
    return data_of(root, key).stat().st_size


def fill(cache: Cache, name: str) -> Records:
    return cache.records(Key.of(name, 1), Making(name * 300_000))


def names(root: Path) -> set[str]:
    return {one.folder.name[0] for one in held(root) if one.used}


def used(root: Path, *order: str) -> None:
    """The first was used longest ago."""
    for n, name in enumerate(order):
        os.utime(data_of(root, Key.of(name, 1)).with_name("about.json"), (n, n))


def test_what_was_used_longest_ago_makes_room(cache: Cache, root: Path) -> None:
    for name in "abc":
        fill(cache, name)
    used(root, "b", "a", "c")
    fill(Cache(Place(root, size_of(root, Key.of("a", 1)) * 7 // 2)), "d")
    assert names(root) == {"a", "c", "d"}
    used(root, "a", "c", "d")
    fill(cache, "a")  # a look at it is a use
    fill(Cache(Place(root, size_of(root, Key.of("a", 1)) * 7 // 2)), "e")
    assert names(root) == {"a", "d", "e"}


def test_what_is_open_is_never_removed(cache: Cache, root: Path) -> None:
    opened = fill(cache, "a")
    small = Cache(Place(root, size_of(root, Key.of("a", 1)) * 3 // 2))
    with pytest.raises(DataLayerError, match=r"local_cache_size_gib"):
        fill(small, "b")
    assert opened[0] == "a" * 300_000 and names(root) == {"a"}
    child = os.fork()
    if not child:  # a worker of a data loader that is still reading
        signal.pause()
        os._exit(0)
    try:
        del opened
        with pytest.raises(DataLayerError):
            fill(small, "b")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    fill(small, "b")
    assert names(root) == {"b"}


def test_what_a_killed_maker_has_left_makes_room(cache: Cache, root: Path) -> None:
    fill(cache, "a")
    left = root / Key.of("a", 1).folder / "building-x"
    left.mkdir()
    with (left / "data.mdb").open("wb") as file:
        file.truncate(1 << 30)
    fill(Cache(Place(root, size_of(root, Key.of("a", 1)) * 5 // 2)), "b")
    assert not left.exists()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=12), st.integers(2, 5))
def test_whatever_is_asked_for_the_bound_holds_and_open_ones_stay(
    tmp_path: Path, steps: list[tuple[str, bool]], fit: int
) -> None:
    root = tmp_path / os.urandom(4).hex()
    root.mkdir()
    one = size_of(root, fill(Cache(Place(root, 1 << 40)), "x").key)
    cache = Cache(Place(root, one * fit))
    kept: dict[str, Records] = {}
    for name, keep in steps:
        try:
            found = fill(cache, name)
        except DataLayerError:
            assert len(kept) >= fit - 1, "it is refused only where what is open leaves no room"
            continue
        assert found[0][0] == name
        if keep and len(kept) < fit:
            kept[name] = found
        del found
        assert sum(dataset.size for dataset in held(root)) <= one * fit
        assert set(kept) <= names(root)
        assert all(records[0] == name * 300_000 for name, records in kept.items())


def test_without_a_bound_half_of_the_disk_may_be_taken(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Disk:
        f_frsize, f_bavail = 1, 100

    monkeypatch.setattr(os, "statvfs", lambda path: Disk)
    make_space(root, None, 50, root / "mine")
    with pytest.raises(DataLayerError, match="may hold 50 bytes, and needs 51"):
        make_space(root, None, 51, root / "mine")


# --- where ------------------------------------------------------------------------------------------------------------


def test_the_section_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "usual"))
    own = f"dethpc-datasets-{os.geteuid()}"
    assert place(None) == Place(tmp_path / "usual" / own)
    there = {"type": "shared_fs", "host_storage_path": str(tmp_path / "there"), "container_storage_path": "/inside"}
    assert place(there) == Place(tmp_path / "there" / own)
    bucket = {"type": "s3", "bucket": "b", "bucket_directory_path": "some/where", "access_key": None}
    found = place({**bucket, "local_cache_host_path": str(tmp_path / "s3"), "local_cache_size_gib": 3})
    assert found.bucket is not None
    assert (found.folder, found.most, found.bucket.where) == (tmp_path / "s3" / own, 3 << 30, "s3://b/some/where")


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    place({"host_storage_path": str(tmp_path)}).folder.chmod(0o755)
    with pytest.raises(DataLayerError, match="others may enter it"):
        place({"host_storage_path": str(tmp_path)})
    (tmp_path / "file").touch()
    with pytest.raises(DataLayerError, match="name another folder in data_layer"):
        place({"host_storage_path": str(tmp_path / "file")})
