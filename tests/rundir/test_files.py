import multiprocessing
import os
import socket
from pathlib import Path

import pytest

from dethpc.errors import Refused, RunDirError
from dethpc.rundir import files
from dethpc.rundir.claim import claim, claimed_by
from dethpc.rundir.files import create_once, left_by_writers, read_json, replacement, sealed, write_json
from dethpc.rundir.journal import JournalWriter
from dethpc.rundir.layout import RunDir
from dethpc.rundir.spec import Spec
from tests.waiting import LONG_ENOUGH


def spec(**changes: object) -> Spec:
    fields = {
        "cluster_id": "c",
        "cluster_name": "n",
        "master_file": "/m",
        "run": "1.1.1",
        "experiment_id": 1,
        "trial_id": 1,
        "task_id": "1.1",
        "run_number": 1,
        "trial_seed": 7,
        "hparams": {"lr": 0.1},
        "config": {},
        "entrypoint": ["python3", "x.py"],
        "context": "/c",
        "context_sha256": "",
        "token": "secret",
    }
    return Spec(**{**fields, **changes})  # type: ignore[arg-type]


def test_what_is_written_is_read_and_private(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"x": 1})
    write_json(tmp_path / "a", {"x": 2})
    assert read_json(tmp_path / "a") == {"x": 2}
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["a"]


def test_absent_is_none_and_damaged_is_said(tmp_path: Path) -> None:
    assert read_json(tmp_path / "a") is None
    for damage in (b"", b"{", b"[1]", b"\xff"):
        (tmp_path / "a").write_bytes(damage)
        with pytest.raises(RunDirError, match="damaged"):
            read_json(tmp_path / "a")


def test_nobody_waits_for_a_pipe_to_read_or_to_write(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        (tmp_path / "device").symlink_to("/dev/zero")
        for name in ("pipe", "device", "socket"):
            for opens in (files.open_regular, files.open_to_append):
                with pytest.raises(OSError, match="no regular file"):
                    opens(tmp_path / name)
    for opens in (files.open_regular, files.open_to_append):
        with pytest.raises(IsADirectoryError):
            opens(tmp_path / "folder")
    with files.open_to_append(tmp_path / "log") as log:
        log.write(b"one\n")
    with files.open_to_append(tmp_path / "log") as log:
        log.write(b"two\n")
        assert os.get_blocking(log.fileno())
    with files.open_regular(tmp_path / "log") as log:
        assert log.read() == b"one\ntwo\n"


def test_a_pipe_in_the_place_of_a_journal_keeps_no_writer_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "journal.jsonl")
    with pytest.raises(OSError, match="no regular file"):
        JournalWriter(tmp_path / "journal.jsonl")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError):
        write_json(tmp_path / "a", {"x": 1})
    assert os.listdir(tmp_path) == ["a"]


def test_a_replacement_is_whole_and_on_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"old")
    fsync, synced = os.fsync, []

    def note(fd: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{fd}"), (tmp_path / "a").read_bytes()))
        fsync(fd)

    monkeypatch.setattr("os.fsync", note)
    with replacement(tmp_path / "a") as file:
        file.write(b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
    (staged, before), (folder, after) = synced
    assert (staged.startswith(f"{tmp_path}/a."), before) == (True, b"old")
    assert (folder, after) == (str(tmp_path), b"new")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("fails", ["block", "check"])
def test_a_replacement_that_fails_leaves_the_old_file_alone(tmp_path: Path, fails: str) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def fail() -> None:
        assert [os.path.getsize(path) for path in left_by_writers(tmp_path / "a")] == [3], (
            "all of it is written before the check"
        )
        raise Refused("another master took over")

    with pytest.raises((Refused, ZeroDivisionError)), replacement(tmp_path / "a", check=fail) as file:
        file.write(b"new")
        if fails == "block":
            raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"old"


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"old")
    (tmp_path / "a").symlink_to("victim")
    with replacement(tmp_path / "a") as file:
        file.write(b"new")
    assert ((tmp_path / "a").is_symlink(), (tmp_path / "victim").read_bytes()) == (False, b"old")


def try_claim(path: str, job: int, barrier, results) -> None:
    barrier.wait()
    results.put((job, claim(path, str(job))))


@pytest.mark.slow
def test_of_many_jobs_one_claims_the_run(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    barrier, results = fork.Barrier(8), fork.Queue()
    children = [fork.Process(target=try_claim, args=(str(tmp_path), job, barrier, results)) for job in range(8)]
    for child in children:
        child.start()
    answers = dict(results.get(timeout=LONG_ENOUGH) for _ in children)
    for child in children:
        child.join()
    results.close()
    winners = [job for job, won in answers.items() if won]
    assert len(winners) == 1
    assert claimed_by(RunDir(tmp_path)) == str(winners[0])
    assert claim(RunDir(tmp_path), str(winners[0]))  # a requeue of the same job
    assert not claim(tmp_path, "another")
    assert os.listdir(tmp_path) == ["claim"]


def test_create_once_keeps_the_first(tmp_path: Path) -> None:
    assert create_once(tmp_path / "a", {"n": 1})
    assert not create_once(tmp_path / "a", {"n": 2})
    assert read_json(tmp_path / "a") == {"n": 1}


def test_layout_finds_attempts_and_logs_in_order(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "1.1.1")
    assert run.attempts() == []
    run.make()
    for k in (0, 2, 10):
        run.attempt(k).make()
    (run.path / "attempts" / "tmp").mkdir()
    assert run.attempts() == [0, 2, 10]
    for node in (0, 11, 2):
        run.attempt(2).log(node).touch()
    assert run.attempt(2).nodes_with_logs() == [0, 2, 11]
    assert run.attempt(10).k == 10
    assert run.path.stat().st_mode & 0o777 == 0o700


def test_spec_survives_the_file(tmp_path: Path) -> None:
    before = spec(slots=8, num_nodes=2, environment={"A": "b c"})
    write_json(tmp_path / "spec.json", sealed(before.to_json()))
    obj = read_json(tmp_path / "spec.json")
    assert obj is not None
    assert Spec.from_json(obj) == before
    write_json(tmp_path / "spec.json", before.to_json())  # as of an earlier release
    assert read_json(tmp_path / "spec.json") == obj
    assert Spec.from_json({**obj, "of a later release": 1}) == before


@pytest.mark.parametrize(
    "damage", [(b"0.1", b"0.3"), (b'"latest_checkpoint"', b'"latest_checkpoinu"'), (b'"sha256": "', b'"sha256": "0')]
)
def test_a_spec_whose_values_were_damaged_is_not_believed(tmp_path: Path, damage: tuple[bytes, bytes]) -> None:
    path = tmp_path / "spec.json"
    write_json(path, sealed(spec(hparams={"lr": 0.1, "layers": (1, 2), "of": {2: "a", 10: "b"}}).to_json()))
    assert Spec.from_json(read_json(path) or {}).hparams["lr"] == 0.1
    path.write_bytes(path.read_bytes().replace(*damage))
    with pytest.raises(RunDirError, match="damaged"):
        Spec.from_json(read_json(path) or {})


@pytest.mark.slow
def test_no_bit_of_a_sealed_file_flips_unnoticed(tmp_path: Path) -> None:
    path, told = tmp_path / "claim", {"job_id": "7", "at": 1.5}
    write_json(path, sealed(told))
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            found = read_json(path)
        except RunDirError:
            continue
        assert found == told, (bit, bytes(data))  # white space alone


def test_spec_says_what_it_lacks() -> None:
    obj = spec().to_json()
    del obj["context"]
    with pytest.raises(RunDirError, match="context"):
        Spec.from_json(obj)
    with pytest.raises(RunDirError, match="version 2"):
        Spec.from_json({**spec().to_json(), "version": 2})
