import os
import resource
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.domain.reports import Report, ReportKind
from dethpc.rundir.journal import JournalWriter, NotWritten, RemainsReader, from_line, read, read_remains, to_line
from tests.example_counts import examples
from tests.memory import megabytes_taken

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
payloads = st.dictionaries(st.text().filter(lambda key: key not in ("at", "kind")), values, max_size=4)


def write(path: Path, count: int) -> None:
    with JournalWriter(path) as journal:
        for n in range(count):
            journal.append("metrics", {"group": "training", "steps_completed": n, "metrics": {"loss": 1 / (n + 1)}})


@given(seq=st.integers(1, 2**70), at=st.floats(0, 1e11), kind=st.text(min_size=1), data=payloads)
def test_a_line_states_its_event(seq: int, at: float, kind: str, data: dict) -> None:
    event = Report(seq, at, kind, data)
    assert "\n" not in to_line(event)
    assert from_line(to_line(event)) == event == from_line(to_line(event) + "\n")


@given(data=payloads, position=st.integers(0), flip=st.integers(1, 255))
def test_one_changed_byte_is_seen(data: dict, position: int, flip: int) -> None:
    line = bytearray(to_line(Report(7, 1.5, "metrics", data)).encode())
    line[position % len(line)] ^= flip
    try:
        changed = from_line(bytes(line))
    except ValueError:
        return
    # A flipped bit may turn "7" into "07"-like spellings of the same number, never into another event.
    assert changed == Report(7, 1.5, "metrics", data)


@pytest.mark.parametrize(
    "line", ["", "\n", "x", "1 2 3", "0 2 00000000 {}", "-1 2 00000000 {}", "1 -2 0 {}", "1 2 0 []"]
)
def test_other_text_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="damaged"):
        from_line(line)


def test_own_fields_may_not_hide_the_frame(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "j") as journal:
        for data in ({"at": 1}, {"kind": "x"}):
            with pytest.raises(ValueError, match="may not be named"):
                journal.append("metrics", data)
        with pytest.raises(TypeError):
            journal.append("metrics", {"metrics": object()})
        assert journal.append("progress", {"progress": 0.5}).seq == 1  # no number was used up


def test_no_file_is_no_event(tmp_path: Path) -> None:
    assert read(tmp_path / "none") == ([], 0)


def test_file_is_private(tmp_path: Path) -> None:
    write(tmp_path / "j", 1)
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600


@given(cuts=st.lists(st.integers(0, 10), max_size=4))
@settings(max_examples=examples(40), deadline=None)
def test_reading_in_pieces_gives_each_event_once(tmp_path_factory: pytest.TempPathFactory, cuts: list) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    seen, offset, after = [], 0, 0
    with JournalWriter(path) as journal:
        for count in cuts:
            for _ in range(count):
                journal.append("progress", {"progress": 0.1})
            events, offset = read(path, offset, after)
            seen += [event.seq for event in events]
            after = seen[-1] if seen else 0
    assert seen == list(range(1, sum(cuts) + 1))
    assert offset == path.stat().st_size


def test_after_seq_leaves_out_what_is_known(tmp_path: Path) -> None:
    write(tmp_path / "j", 5)
    events, offset = read(tmp_path / "j", 0, 3)
    assert [event.seq for event in events] == [4, 5]
    assert offset == (tmp_path / "j").stat().st_size


@given(cut=st.integers(0, 400))
@settings(max_examples=examples(60), deadline=None)
def test_a_torn_tail_is_not_read_and_is_written_over(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    write(path, 5)
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - cut)])
    events, offset = read(path)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert whole.startswith(path.read_bytes()[:offset])
    with JournalWriter(path) as journal:
        assert journal.append("ack", {}).seq == len(events) + 1
    again, end = read(path)
    assert again[:-1] == events
    assert again[-1].kind == "ack"
    assert end == path.stat().st_size


@given(position=st.integers(0, 10**6), flip=st.integers(1, 255))
@settings(max_examples=examples(60), deadline=None)
def test_a_corrupted_byte_ends_reading_there(
    tmp_path_factory: pytest.TempPathFactory, position: int, flip: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    write(path, 6)
    good, _ = read(path)
    raw = bytearray(path.read_bytes())
    raw[position % len(raw)] ^= flip
    path.write_bytes(raw)
    events, offset = read(path)
    assert events == good[: len(events)]
    assert offset <= len(raw)


@given(offset=st.integers(0, 500))
@settings(max_examples=examples(60), deadline=None)
def test_an_offset_inside_a_line_yields_no_event(tmp_path_factory: pytest.TempPathFactory, offset: int) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    write(path, 3)
    whole = path.read_bytes()
    events, after = read(path, offset)
    if 0 < offset < len(whole) and whole[offset - 1 : offset] != b"\n":
        assert (events, after) == ([], offset)
    else:
        assert len(events) == whole[offset:].count(b"\n")


def test_a_missing_number_ends_reading(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_text(to_line(Report(1, 0.0, "ack", {})) + "\n" + to_line(Report(3, 0.0, "ack", {})) + "\n")
    assert [event.seq for event in read(path)[0]] == [1]


def test_numbers_go_on_after_opening_again(tmp_path: Path) -> None:
    write(tmp_path / "j", 3)
    write(tmp_path / "j", 2)
    assert [event.seq for event in read(tmp_path / "j")[0]] == [1, 2, 3, 4, 5]


def test_a_killed_writer_leaves_a_readable_journal(tmp_path: Path) -> None:
    code = (
        "import sys; from dethpc.rundir.journal import JournalWriter; j = JournalWriter(sys.argv[1])\n"
        "while True: print(j.append('metrics', {'metrics': {'loss': 0.5}}).seq, flush=True)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "j")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdout is not None
    for _ in range(200):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    told = [int(line) for line in child.stdout.read().split()] or [200]
    child.wait()
    child.stdout.close()
    assert len(read(tmp_path / "j")[0]) >= told[-1]


def test_a_full_disk_says_so_and_loses_no_event(tmp_path: Path) -> None:
    """A file size limit stands for the full disk: the kernel refuses the same write with another number."""
    path = tmp_path / "j"
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    journal = JournalWriter(path)
    try:
        first = journal.append("metrics", {"metrics": {"loss": 1.0}})
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, old[1]))
        with pytest.raises(NotWritten) as refused:
            journal.append("metrics", {"metrics": {"loss": 0.5}})
        with pytest.raises(OSError):
            journal.append("checkpoint", {"uuid": "c"})
        assert refused.value.report.seq == 2
        assert [event.seq for event in read(path)[0]] == [first.seq]
        assert path.read_bytes().endswith(b"\n")  # nothing half-written is left
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        journal.append("ack", {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, ignored)
        journal.close()
    events, _ = read(path)
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert events[1] == refused.value.report
    assert [event.kind for event in events] == ["metrics", "metrics", "checkpoint", "ack"]


def test_an_unwritable_place_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        JournalWriter(tmp_path / "missing" / "j")


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path / "j")
    journal.append("ack", {})
    journal.close()
    journal.close()


def test_what_remains_of_a_journal_is_all_but_its_damaged_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with JournalWriter(path) as journal:
        for n in range(5):
            journal.append(ReportKind.PROGRESS, {"progress": n / 4})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\x00\xff\n" + lines[2] + lines[3][:10] + b"\n" + lines[4] + b'6 30 {"to')
    assert [report.seq for report in read(path)[0]] == [1]
    remains = read_remains(path)
    assert [report.seq for report in remains.reports] == [1, 3, 5] and remains.missing == 2
    assert read_remains(path, remains.offset, 5) == ([], remains.offset, 0)
    with JournalWriter(path) as again:
        assert again.append(ReportKind.PROGRESS, {"progress": 1.0}).seq == 6
    assert [report.seq for report in read_remains(path).reports] == [1, 3, 5, 6]


def test_a_hole_in_a_journal_does_not_swallow_the_report_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with JournalWriter(path) as journal:
        for n in range(6):
            if n == 3:
                os.truncate(path, path.stat().st_size // 2)  # the writer goes on where it was
            journal.append(ReportKind.PROGRESS, {"progress": n / 5})
    assert [report.seq for report in read(path)[0]] == [1]
    remains = read_remains(path)
    assert [report.seq for report in remains.reports] == [1, 4, 5, 6] and remains.missing == 2
    assert damaged_lines(path) == [2]


def test_the_numbers_of_damaged_lines_are_those_of_the_file(tmp_path: Path) -> None:
    """Whatever is missing before them, or there twice."""
    path = tmp_path / "journal.jsonl"
    write(path, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"garbage\n" + lines[3])
    assert read_remains(path).missing == 2 and damaged_lines(path) == [2]
    path.write_bytes(lines[0] + lines[2] + lines[2] + b"garbage\n" + lines[3] + b"torn")
    assert [report.seq for report in read_remains(path).reports] == [1, 3, 4] and damaged_lines(path) == [4]


def damaged_lines(path: Path) -> list[int]:
    damaged: list[int] = []
    reader = RemainsReader(path, damaged=damaged)
    while not reader.whole:
        reader.read(1 << 20)
    return damaged


def test_a_damaged_line_whose_report_came_another_way_is_not_missing(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, 3)
    data = path.read_bytes()
    path.write_bytes(data[:-5] + b"!" + data[-4:])
    assert read_remains(path).missing == 1
    assert read_remains(path, after_seq=3).missing == 0


@pytest.mark.slow
def test_a_line_of_hundreds_of_megabytes_costs_few(tmp_path: Path) -> None:
    """Of zero bytes, which take no room on the disk; a report behind them counts."""
    path = tmp_path / "journal.jsonl"
    write(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0])
    with open(path, "r+b") as file:
        file.seek(300 << 20)
        file.write(lines[2])
    code = (
        f"reports, offset = read({str(path)!r})\n"
        f"assert [r.seq for r in reports] == [1] and offset == {len(lines[0])}\n"
        f"remains = RemainsReader({str(path)!r})\n"
        "seen, looks = [], 0\n"
        "while not remains.whole: seen, looks = seen + remains.read(1 << 20), looks + 1\n"
        "assert [r.seq for r in seen] == [1, 3] and remains.missing == 1 and looks > 100, (seen, looks)\n"
    )
    setup = "from dethpc.rundir.journal import RemainsReader, read"
    assert megabytes_taken(setup, code) < 80


@pytest.mark.parametrize("most", [1, 100, 1000, 1 << 20])
def test_by_pieces_or_at_once_the_same_remains(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the damage and the pieces are: long lines, holes, torn ends."""
    monkeypatch.setattr("dethpc.rundir.journal.MOST_LINE", 200)
    monkeypatch.setattr("dethpc.rundir.journal.A_LOOK", 30)
    path = tmp_path / "journal.jsonl"
    write(path, 6)
    lines = path.read_bytes().splitlines(keepends=True)
    long, hole = b"x" * 1000 + b"\n", b"\0" * 700
    path.write_bytes(lines[0] + long + lines[2] + hole + lines[3] + b"y" * 250 + hole + lines[5] + b"torn")
    remains, seen = RemainsReader(path), []
    while not remains.whole:
        seen += remains.read(most)
    assert [report.seq for report in seen] == [1, 3, 4, 6] and remains.missing == 2
    assert remains.offset == path.stat().st_size - 4
    assert remains.read(most) == [] and remains.whole
    with open(path, "r+b") as file:  # a node that was given up goes on
        file.seek(remains.offset)
        file.write(to_line(Report(7, 1.0, ReportKind.PROGRESS, {"progress": 1.0})).encode() + b"\n")
    assert [report.seq for report in remains.read(1 << 20)] == [7]


def test_a_report_of_too_many_values_is_damaged_and_is_never_written(tmp_path: Path) -> None:
    """Three bytes of an empty list take some sixty in memory."""
    text = '{"at": 1.0, "kind": "status", "x": [' + "[]," * 300_000 + "[]]}"
    with pytest.raises(ValueError, match="damaged"):
        from_line(f"1 {len(text)} {zlib.crc32(text.encode(), 1):08x} {text}")
    with JournalWriter(tmp_path / "journal.jsonl") as journal, pytest.raises(ValueError, match="500000 values"):
        journal.append(ReportKind.STATUS, {"x": [[]] * 300_000})


def test_a_report_nested_without_end_is_a_damaged_line() -> None:
    text = '{"at": 1.0, "kind": "status", "x": ' + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(ValueError, match="damaged"):
        from_line(f"1 {len(text)} {zlib.crc32(text.encode(), 1):08x} {text}")
