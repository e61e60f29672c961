"""What ``det experiment describe`` and ``det trial describe`` print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Optional

from dethpc.cli import output
from dethpc.client import experiments, trials
from dethpc.client.session import Session
from dethpc.domain.trial_config import SearcherConfig

Json = dict[str, Any]


def describe_experiments(
    session: Session,
    ids: Sequence[int],
    *,
    metrics: bool,
    search: bool,
    outdir: Optional[Path],
    as_csv: bool,
    as_json: bool,
) -> None:
    """Describe each experiment. JSON: one object each, the wire's answer with ``trials`` (and ``workloads``), ``search``
    and ``waiting`` added."""
    found = []
    for experiment_id in ids:
        about = experiments.get(session, experiment_id)
        about["trials"] = list(experiments.trials(session, experiment_id))
        about["search"] = experiments.search(session, experiment_id)
        ended = about["experiment"].get("endTime")
        about["waiting"] = {"groups": []} if ended else experiments.waiting(session, experiment_id)
        if metrics:
            for trial in about["trials"]:
                trial["workloads"] = list(trials.workloads(session, int(trial["id"]), batch_metrics=True))
        found.append(about)
    if as_json:
        output.print_json(found)
    elif as_csv or outdir:
        _write_csv(found, outdir, search=search)
    else:
        for n, about in enumerate(found):
            if n:
                output.echo()
            _print_experiment(about, search=search)


def trial_headers(metric: Optional[str]) -> list[str]:
    return ["Trial", "State", "Steps", f"Best {metric or 'metric'}", "Restarts", "Hyperparameters", "Reason"]


def trial_row(trial: Json) -> list[Any]:
    return [
        trial["id"],
        output.state(trial.get("state")),
        trial.get("totalBatchesProcessed"),
        output.number(best_metric(trial)),
        trial.get("restarts"),
        output.compact(trial.get("hparams")),
        reason(trial),
    ]


def best_metric(trial: Json) -> Any:
    """The searcher metric of the best validation, as the master names it or as the validation holds it."""
    if trial.get("searcherMetricValue") is not None:
        return trial["searcherMetricValue"]
    averages = ((trial.get("bestValidation") or {}).get("metrics") or {}).get("avgMetrics") or {}
    return next(iter(averages.values())) if len(averages) == 1 else None


def reason(noun: Json) -> str:
    """Why it is in its state, in words; "" when the master has nothing to say."""
    return str(noun.get("reason") or "")


def waiting(reason: Json) -> str:
    """Why trials wait and what would start them sooner; how many, when it is said of several."""
    many = f"{reason['count']} trials: " if reason.get("count", 1) > 1 else ""
    start = f". Expected to start at {output.when(reason['startTime'])}" if reason.get("startTime") else ""
    return f"{many}{reason['text']}{start}"


def workload_rows(workloads: Iterable[Json]) -> list[list[Any]]:
    """[steps, reported, kind, what]: one row per report."""
    rows = []
    for workload in workloads:
        for kind in ("training", "validation", "checkpoint"):
            about = workload.get(kind)
            if about is None:
                continue
            if kind == "checkpoint":
                what = f"{about.get('uuid') or ''} {output.state(about.get('state'))}"
            else:
                what = output.compact((about.get("metrics") or {}).get("avgMetrics"))
            rows.append([about.get("totalBatches"), output.when(about.get("endTime")), kind, what])
    return rows


WORKLOAD_HEADERS = ["Steps", "Reported", "Kind", "What"]


# --- the search

_NAMED = 4  # how many trials of a rung are named


def progress(experiment: Json, search: Json) -> str:
    """``34%, about 0:12:05 to go (until 2026-03-01T12:00:00)``; how long only while that can be estimated."""
    if experiment.get("endTime"):
        return output.percent(experiment.get("progress"))
    done, end = output.percent(search.get("progress")), search.get("estimatedEndTime")
    if not end:
        return done
    import datetime

    left = datetime.datetime.fromisoformat(end.replace("Z", "+00:00")) - datetime.datetime.now(datetime.timezone.utc)
    return f"{done}, about {datetime.timedelta(seconds=max(0, round(left.total_seconds())))} to go (until {output.when(end)})"


def rung_headers(search: Json) -> list[str]:
    return ["Bracket", "Rung", (search.get("unit") or "length").capitalize(), "Entered", "Went on", "Cut-off", "Best"]


def rung_rows(search: Json) -> list[list[Any]]:
    """One row per rung, with its best trials: ``12: 0.25 ↑`` is trial 12 with its value, and it went on."""
    return [
        [
            number,
            rung_number,
            output.number(rung["length"]),
            f"{rung['entered']}/{rung['places']}" if rung.get("places") else rung["entered"],
            rung["wentOn"],
            output.number(rung.get("cutOff")),
            _named(rung["trials"]),
        ]
        for number, bracket in enumerate(search["brackets"])
        for rung_number, rung in enumerate(bracket["rungs"])
    ]


def _named(trials: Sequence[Json]) -> str:
    best = [
        f"{trial['trialId']}: {'none' if trial['value'] is None else output.number(trial['value'])}"
        + (" ↑" if trial["wentOn"] else "")
        for trial in trials[:_NAMED]
    ]
    return ", ".join(best + ([f"and {len(trials) - _NAMED} more"] if len(trials) > _NAMED else []))


def place_headers(search: Json) -> list[str]:
    unit = search.get("unit") or "length"
    return [
        "Trial",
        "State",
        "Bracket",
        "Rung",
        unit.capitalize(),
        search.get("metric") or "Metric",
        "Next",
        "From",
        "Reason",
    ]


def place_rows(search: Json) -> list[list[Any]]:
    return [
        [
            place["trialId"],
            output.state(place["state"]),
            place["bracket"],
            place["rung"],
            output.number(place["length"]),
            output.number(place["value"]),
            output.number(place["nextLength"]),
            place["parentTrialId"],
            place["reason"],
        ]
        for place in search["trials"]
    ]


def _print_experiment(about: Json, *, search: bool) -> None:
    e, config = about["experiment"], about.get("config") or {}
    searcher = SearcherConfig.of(config)
    output.print_fields(
        [
            ("Experiment", e["id"]),
            ("Name", e.get("name")),
            ("Description", e.get("description")),
            ("State", output.state(e.get("state"))),
            ("Reason", reason(e)),
            *(("Waiting", waiting(group)) for group in about["waiting"]["groups"]),
            ("Progress", progress(e, about["search"])),
            ("Owner", e.get("username")),
            ("Started", output.when(e.get("startTime"))),
            ("Ended", output.when(e.get("endTime"))),
            ("Searcher", f"{searcher.name} {searcher.metric}".strip()),
            ("Resource pool", e.get("resourcePool")),
            ("Labels", ", ".join(sorted(e.get("labels") or []))),
            ("Archived", "yes" if e.get("archived") else ""),
        ]
    )
    if not about["trials"]:
        output.echo("No trials yet.")
        return
    if about["search"]["brackets"]:
        output.echo()
        output.print_table(rung_headers(about["search"]), rung_rows(about["search"]))
    if search:
        output.echo()
        output.print_table(place_headers(about["search"]), place_rows(about["search"]))
    output.echo()
    output.print_table(trial_headers(searcher.metric), [trial_row(t) for t in about["trials"]])
    for trial in about["trials"]:
        if trial.get("workloads"):
            output.print_table(WORKLOAD_HEADERS, workload_rows(trial["workloads"]), title=f"\nTrial {trial['id']}")


_EXPERIMENT_COLUMNS = ["id", "state", "progress", "startTime", "endTime", "name", "description", "archived"]
_EXPERIMENT_COLUMNS += ["resourcePool", "labels", "reason"]


def _write_csv(found: Sequence[Json], outdir: Optional[Path], *, search: bool) -> None:
    """experiments.csv, trials.csv and, where asked for, search.csv and workloads.csv; without ``outdir`` all on stdout."""
    tables: list[tuple[str, list[str], list[list[Any]]]] = []
    rows = [
        [
            output.compact(e.get(c)) if c == "labels" else output.state(e.get(c)) if c == "state" else e.get(c)
            for c in _EXPERIMENT_COLUMNS
        ]
        for e in (about["experiment"] for about in found)
    ]
    tables.append(("experiments", _EXPERIMENT_COLUMNS, rows))
    all_trials = [(about["experiment"]["id"], trial) for about in found for trial in about["trials"]]
    tables.append(("trials", ["Experiment", *trial_headers(None)], [[e, *trial_row(t)] for e, t in all_trials]))
    if search:
        places = [[about["experiment"]["id"], *row] for about in found for row in place_rows(about["search"])]
        tables.append(("search", ["Experiment", *place_headers({})], places))
    if any("workloads" in trial for _, trial in all_trials):
        reports = [[t["id"], *row] for _, t in all_trials for row in workload_rows(t["workloads"])]
        tables.append(("workloads", ["Trial", *WORKLOAD_HEADERS], reports))
    if outdir is None:
        for n, (_, headers, lines) in enumerate(tables):
            if n:
                output.echo()
            output.print_table(headers, lines, as_csv=True)
        return
    import csv

    outdir.mkdir(parents=True, exist_ok=True)
    for name, headers, lines in tables:
        with open(outdir / f"{name}.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([headers, *lines])
        output.echo(outdir / f"{name}.csv")
