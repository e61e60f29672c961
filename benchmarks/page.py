"""Make docs/benchmarks.md and its plots of the figures that ``python -m benchmarks`` keeps.

The same figures give the same page. What stands above a table is the docstring of the benchmark as it was when it was measured.
What was found in hours (``ENDURANCE``) stands in ``benchmarks/sections``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import BENCHES, ENDURANCE
from benchmarks.__main__ import RESULTS, ROOT
from benchmarks.frame import Figure, Row
from benchmarks.plot import Point, plot

DOCS, SECTIONS = ROOT / "docs", ROOT / "benchmarks" / "sections"
HEAD = """\
# Benchmarks

`python -m benchmarks.page` makes this page of what `python -m benchmarks` has measured. `python -m benchmarks.NAME` measures a few
rows ([all names](../benchmarks/__init__.py)), with `--quick` mostly in less than a minute. Run them from the repository root, in
the environment that `./scripts/test` creates. Some peers (MLflow, optuna-dashboard, Syne Tune) are compared where they are
installed.

Ours and the peers are measured in one run, in windows that take turns. A figure is a median, with its 95 % bootstrap interval in
brackets; a ratio is ours over the first peer's, and the median over neighbouring windows where that can be. Compare ratios, not
seconds: a machine that does other work alters the seconds. Pure computation is told as processor time, because the clock means
little on a busy machine; what somebody waits for is told by the clock. A limit is **met** if
the whole interval keeps to it, *not shown* if the interval has values on both sides, and **not met** if all of it is beyond. Limits
of time are those of a machine on which an empty Python starts in 9 ms. Where it takes longer, just before and after a figure, they
are longer by as much, and limits of rates lower: "here" says what they are then.
"""
BUDGETS = """\
## Budgets

{counts} `--quick` marks figures of few windows. {load}

![Each figure over its limit](benchmarks/budgets.svg)

| what | ours | beside | ratio | limit | | command |
|---|---|---|---|---|---|---|
"""
VERDICTS = {"met": "**met**", "not met": "**not met**", "not shown": "*not shown*", "": ""}

Results = Mapping[str, Mapping[str, Any]]


def made(results: Results) -> dict[Path, str]:
    """The page and its plots, below docs/."""
    files = {Path("benchmarks/budgets.svg"): budget_plot(results)}
    parts = [HEAD, BUDGETS.format(counts=counts(results), load=load(results)) + "".join(budgets(results))]
    for heading, names in BENCHES.items():
        parts.append(f"## {heading}\n")
        if points := list(beside(names, results)):
            file = Path("benchmarks", heading.lower().replace(" ", "-") + ".svg")
            files[file] = plot(points, "less than the peer", "more than the peer")
            parts.append(f"![Ours over the peers]({file})\n")
        parts += [section(name, results.get(name)) for name in names]
    parts += [path.read_text() for name in ENDURANCE for path in sorted(SECTIONS.glob(f"{name}*.md"))]
    files[Path("benchmarks.md")] = "\n".join(parts)
    return files


def rows(names: Iterable[str], results: Results) -> Iterator[tuple[str, Row]]:
    for name in names:
        for stored in results.get(name, {}).get("rows", []):
            yield name, Row.of_json(stored)


def limited(results: Results) -> list[tuple[str, Row]]:
    every = [name for names in BENCHES.values() for name in names]
    return [(name, row) for name, row in rows(every, results) if row.limit is not None]


def counts(results: Results) -> str:
    verdicts = [row.verdict for _, row in limited(results)]
    return (
        f"Of {len(verdicts)} limits, {verdicts.count('met')} are met, {verdicts.count('not shown')} not shown and "
        f"{verdicts.count('not met')} not met."
    )


def load(results: Results) -> str:
    """What else the machine did, in words."""
    loads = [load for result in results.values() for load in result.get("load", [])]
    machines = sorted({result["machine"] for result in results.values() if "machine" in result})
    if not loads:
        return ""
    return (
        f"Measured at loads of {min(loads):g} to {max(loads):g} (each section says which) on {' and '.join(machines)}."
    )


def budgets(results: Results) -> Iterator[str]:
    for name, row in limited(results):
        quick = " `--quick`" if results[name]["quick"] else ""
        peer = next((f"{peer} {cell(figure, row.unit)}" for peer, figure in row.peers.items()), "")
        yield (
            f"| {row.name} | {cell(row.ours, row.unit)} | {peer} | {row.ratio or ''} | {row.bound} | {VERDICTS[row.verdict]} "
            f"| `benchmarks.{name}`{quick} |\n"
        )


def budget_plot(results: Results) -> str:
    """How much of its limit each row takes, whichever side of it is the good one."""
    points = []
    for _, row in limited(results):
        ends = (row.judged.middle, *row.judged.ends)
        if row.limit and all(ends):
            parts = [end / row.scaled if row.rule == "<=" else row.scaled / end for end in ends]
            points.append(Point(row.name, Figure(parts[0], min(parts), max(parts)), row.verdict))
    return plot(points, "keeps to its limit", "beyond its limit")


def beside(names: Iterable[str], results: Results) -> Iterator[Point]:
    """Ours over each peer, where that says something."""
    for _, row in rows(names, results):
        for number, (peer, figure) in enumerate(row.peers.items()):
            if row.ratio is not None:
                yield Point(
                    f"{row.name} / {peer}", row.ratio if number == 0 else Figure(row.ours.middle / figure.middle)
                )


def section(name: str, result: Mapping[str, Any] | None) -> str:
    if result is None:
        return f"### `python -m benchmarks.{name}`\n\nNot measured yet.\n"
    if "failed" in result:
        return f"### `python -m benchmarks.{name}`\n\nThe last run failed: `{result['failed']}`\n"
    before, after = result["load"]
    return (
        f"### `python -m benchmarks.{name}{' --quick' if result['quick'] else ''}`\n\n{prose(result['method'])}\n\n"
        f"{result['date']}, {result['machine']}; load {before:g} before and {after:g} after; {result['seconds']} s.\n\n"
        f"{table([Row.of_json(stored) for stored in result['rows']])}"
    )


def prose(method: str) -> str:
    """A docstring as Markdown."""
    return method.replace("``", "`").replace("::\n", ":\n")


def table(rows: list[Row]) -> str:
    """Without the columns that are empty."""
    columns = {
        "what": [row.name for row in rows],
        "ours": [cell(row.ours, row.unit) for row in rows],
        "beside": ["; ".join(f"{peer} {cell(f, row.unit)}" for peer, f in row.peers.items()) for row in rows],
        "ratio": [str(row.ratio or "") for row in rows],
        "limit": [" ".join(part for part in (row.bound, VERDICTS[row.verdict]) if part) for row in rows],
        "note": [row.note for row in rows],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    lines = [shown.keys(), ["---"] * len(shown), *zip(*shown.values())]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def cell(figure: Figure, unit: str) -> str:
    """The unit follows the value."""
    value, bracket, interval = str(figure).partition(" (")
    return f"{value} {unit}".strip() + bracket + interval


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.page", description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS, metavar="RESULTS.json")
    options = parser.parse_args()
    files = made(json.loads(options.results.read_text()))
    (DOCS / "benchmarks").mkdir(exist_ok=True)
    for old in (DOCS / "benchmarks").glob("*.svg"):
        old.unlink()
    for path, text in files.items():
        (DOCS / path).write_text(text)


if __name__ == "__main__":
    main()
