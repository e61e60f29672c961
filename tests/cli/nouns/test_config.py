"""``det config``, ``det preview-search``, and what ``det experiment create`` says about older configurations."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

OLD = """\
entrypoint: model_def:Digits   # as it was
batches_per_step: 50
searcher: {name: random, metric: loss, max_trials: 3, max_steps: 10}
"""
NEW = """\
entrypoint: model_def:Digits   # as it was
scheduling_unit: 50
searcher: {name: random, metric: loss, max_trials: 3, max_length: {batches: 500}}
"""
SUMMARY = {
    "config": {"name": "random"},
    "trials": [
        {"count": 3, "unit": {"name": "batches", "value": 100, "maxLength": False}},
        {"count": 1, "unit": {"name": "batches", "value": 400, "maxLength": False}},
    ],
}


def test_upgrade_prints_the_present_form(det: Any, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(OLD)
    done = det("config", "upgrade", "c.yaml")
    assert (done.returncode, done.stdout) == (0, NEW)
    assert "c.yaml:3: searcher.max_steps: 10 -> searcher.max_length: {batches: 500}" in done.stderr
    assert (tmp_path / "c.yaml").read_text() == OLD


def test_upgrade_reads_standard_input(det: Any) -> None:
    assert det("config", "upgrade", "-", input=OLD).stdout == NEW
    done = det("config", "upgrade", "-i", "-", input=OLD)
    assert done.returncode == 2 and "needs the name of a file" in done.stderr


def test_upgrade_in_place_keeps_mode_link_and_line_ends(det: Any, tmp_path: Path) -> None:
    file, link = tmp_path / "c.yaml", tmp_path / "link.yaml"
    file.write_bytes(OLD.replace("\n", "\r\n").encode())
    file.chmod(0o640)
    link.symlink_to("c.yaml")
    done = det("config", "upgrade", "--in-place", "link.yaml")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert file.read_bytes() == NEW.replace("\n", "\r\n").encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640 and link.is_symlink()
    assert "already in today's form" in det("config", "upgrade", "-i", "c.yaml").stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix) == ["c.yaml", "link.yaml"]


def test_upgrade_says_what_is_wrong(det: Any, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("searcher:\n  name: single\n  max_steps: many\n")
    done = det("config", "upgrade", "-i", "c.yaml")
    assert done.returncode == 1 and "c.yaml:3: searcher.max_steps" in done.stderr
    assert (tmp_path / "c.yaml").read_text().endswith("many\n")


def test_create_says_what_it_translated_and_sends_the_text_as_written(det: Any, master: Any, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(OLD)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model_def.py").write_text("class Digits: ...\n")
    done = det("experiment", "create", "c.yaml", "code", master=master)
    assert (done.returncode, done.stdout) == (0, "Created experiment 7\n"), done.stderr
    assert "c.yaml:2: batches_per_step: 50 -> scheduling_unit: 50" in done.stderr
    assert "searcher.max_length: {batches: 500} (a step is 50 batches)" in done.stderr
    assert "det config upgrade c.yaml" in done.stderr
    [(_, body)] = master.did("POST")
    assert body["config"] == OLD


def test_a_preview_lists_trials_by_length(det: Any, master: Any, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(OLD)
    answer = master.answer
    master.answer = lambda method, path, query, body: (
        {"summary": SUMMARY} if path == "/api/v1/preview-hp-search" else answer(method, path, query, body)
    )
    done = det("preview-search", "c.yaml", "--config", "searcher.max_trials=4", master=master)
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()[:3]] == [
        ["Trials", "Training"],
        ["3", "100", "batches"],
        ["1", "400", "batches"],
    ]
    assert done.stdout.splitlines()[3] == "4 trials, 700 batches in total, as much as 1.75 trials of 400 batches"
    [(_, body)] = master.did("POST")
    assert body["config"]["searcher"]["max_trials"] == 4
    assert json.loads(det("preview-search", "c.yaml", "--json", master=master).stdout) == {"summary": SUMMARY}


def test_a_preview_of_a_mistaken_configuration_asks_nobody(det: Any, master: Any, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("entrypoint: x\nsearcher: {name: random, metric: loss}\n")
    done = det("preview-search", "c.yaml", master=master)
    assert done.returncode == 1 and "c.yaml:2: searcher.max_trials" in done.stderr
    assert master.did("POST") == []
