"""``det checkpoint``: deleting, and what is asked before."""

from __future__ import annotations

from typing import Any


def test_delete_asks_before_it_deletes(det: Any, master: Any) -> None:
    done = det("checkpoint", "delete", "a,b", master=master)
    assert done.returncode != 0 and not master.did("DELETE")
    assert det("checkpoint", "delete", "a,b", "--yes", master=master).returncode == 0
    assert master.did("DELETE") == [("/api/v1/checkpoints", {"checkpointUuids": ["a", "b"]})]


def test_rm_removes_what_globs_name_and_without_one_only_looks(det: Any, master: Any) -> None:
    assert det("c", "rm", "a", "--glob", "code/**", "--glob", "*.pt", "-y", master=master).returncode == 0
    assert "Looked" in det("c", "rm", "a", master=master).stdout
    assert [body["checkpointGlobs"] for _, body in master.did("POST")] == [["code/**", "*.pt"], []]


def test_rm_of_files_says_that_a_deleted_checkpoint_has_none(det: Any, master: Any) -> None:
    master.files = {"a": None}
    done = det("c", "rm", "a", "--glob", "*.pt", "-y", master=master)
    said = "det: error: no file of checkpoint a matches *.pt; it has no files\n"
    assert (done.returncode, done.stderr) == (1, said) and not master.did("POST")


def test_rm_says_which_files_there_are_where_no_glob_means_one_and_removes_none(det: Any, master: Any) -> None:
    files = {f"part{n}.pt": "1" for n in range(7)} | {"code/": "0", "code/net.py": "1"}
    master.files = {"a": files, "b": {}, "c": {"part0.pt": "1"}}
    done = det("c", "rm", "a", "--glob", "nomatch*", "--glob", "x", "-y", master=master)
    said = "no file of checkpoint a matches nomatch* or x; it has code/net.py, part0.pt, part1.pt, part2.pt, part3.pt"
    assert (done.returncode, done.stderr) == (1, f"det: error: {said} and 3 more\n") and not master.did("POST")
    assert det("c", "rm", "a", "--glob", "x", "--glob", "code", "-y", master=master).returncode == 0
    some = det("c", "rm", "a,b,c", "--glob", "c*", "-y", master=master)  # the master looks what b has
    assert some.stderr == "warning: no file of checkpoint c matches c*; it has part0.pt\n"
    assert [body["checkpointUuids"] for _, body in master.did("POST")] == [["a"], ["a", "b"]]
