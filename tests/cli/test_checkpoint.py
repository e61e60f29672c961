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
