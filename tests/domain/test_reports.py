"""The kinds of reports: named once, described in the documentation, each with a place where it is applied."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dethpc.domain.reports import MOST_BYTES, Report, ReportKind, fault
from dethpc.engine.reports import _REPORTS
from dethpc.rundir.journal import JournalWriter, from_line, read, to_line

DOCS = Path(__file__).parents[2] / "docs"


def test_documentation_lists_every_kind_of_report() -> None:
    section = (DOCS / "run-directory.md").read_text().split("## journal.jsonl")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| (`.*?) \|", section, re.M)
    assert sorted(re.findall(r"`(\w+)`", " ".join(first_cells))) == sorted(kind.value for kind in ReportKind)


def test_engine_applies_every_kind_that_changes_a_row() -> None:
    for_people_or_the_node = {ReportKind.ACK, ReportKind.ALERT}
    needs_all_checkpoints = {
        ReportKind.CHECKPOINT_DAMAGED,
        ReportKind.CHECKPOINT_DELETED,
        ReportKind.CHECKPOINT_WAITING,
    }
    assert set(_REPORTS) == set(ReportKind) - for_people_or_the_node - needs_all_checkpoints


def test_kind_of_a_later_release_is_read_as_the_word_it_is() -> None:
    later = Report(1, 2.5, "energy", {"joules": 3})
    assert from_line(to_line(later)) == later and not later.durable


@pytest.mark.parametrize(
    ("kind", "data", "durable"),
    [
        (ReportKind.METRICS, {"group": "training"}, False),
        (ReportKind.METRICS, {"group": "validation"}, True),
        (ReportKind.CHECKPOINT, {}, True),
        (ReportKind.ACK, {}, True),
        (ReportKind.PROGRESS, {}, False),
        (ReportKind.ALERT, {}, False),
    ],
)
def test_report_that_decisions_follow_from_is_durable(kind: ReportKind, data: dict[str, str], durable: bool) -> None:
    assert Report(1, 0.0, kind, data).durable is durable
    assert Report(1, 0.0, kind.value, data).durable is durable  # as it is read from a journal


def test_journal_spells_a_kind_as_its_plain_word(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "journal.jsonl") as journal:
        journal.append(ReportKind.EARLY_EXIT, {"reason": "x"})
    assert '"kind":"early_exit"' in (tmp_path / "journal.jsonl").read_text()
    assert read(tmp_path / "journal.jsonl")[0][0].kind == ReportKind.EARLY_EXIT


@pytest.mark.parametrize(
    ("sizes", "words"),
    [((MOST_BYTES,), ""), ((MOST_BYTES, 1), "more than"), ((-1,), "no number"), ((2.5,), "no number")],
)
def test_a_checkpoint_is_no_larger_than_what_can_be_summed(sizes: tuple[float, ...], words: str) -> None:
    resources = {f"file-{n}": size for n, size in enumerate(sizes)}
    told = fault(Report(1, 0.0, ReportKind.CHECKPOINT, {"uuid": "a", "steps_completed": 1, "resources": resources}))
    assert words in told if words else not told
