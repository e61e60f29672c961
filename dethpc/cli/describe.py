"""The output of ``det experiment describe`` and ``det trial describe``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Optional

from dethpc import errors, storage
from dethpc.cli import interpreter, output, tables
from dethpc.cli.output import Json
from dethpc.cli.trial_table import best_few, trial_columns, trial_table, with_curves
from dethpc.client.nouns import cluster, experiments, trials
from dethpc.client.session import Session
from dethpc.domain.progress import progress
from dethpc.domain.text.times import moment, seconds
from dethpc.domain.trial_config import SearcherConfig, TrialConfig


def describe_experiments(
    session: Session,
    ids: Sequence[int],
    *,
    metrics: bool,
    search: bool,
    outdir: Optional[Path],
    layout: tables.Layout,
) -> None:
    """Describe each experiment. JSON: one object each, the wire's answer with ``trials`` (and ``workloads``), ``search``
    and ``waiting`` added."""
    answers = []
    whole = layout.as_json or layout.as_csv
    some = 0 if search or whole else _NAMED  # of the search's trials: the rungs name no more
    few = sys.stdout.isatty() and not (metrics or whole)
    for experiment_id in ids:
        about = experiments.get(session, experiment_id)
        about["trials"] = best_few(session, about) if few else list(experiments.trials(session, experiment_id))
        about["search"] = experiments.search(session, experiment_id, limit=some)
        ended = about["experiment"].get("endTime")
        about["waiting"] = {"groups": []} if ended else experiments.waiting(session, experiment_id)
        if metrics:
            for trial in about["trials"]:
                trial["workloads"] = list(trials.workloads(session, int(trial["id"]), batch_metrics=True))
        answers.append(about)
    if layout.as_json:
        output.print_json(answers)
    elif layout.as_csv:
        _write_csv(answers, outdir, search=search)
    else:
        tensorboards = Tensorboards(session)
        for n, about in enumerate(answers):
            if n:
                output.echo()
            with_curves(session, about, about["trials"])
            about["tensorboard"] = tensorboards.of(about)
            _print_experiment(about, search=search)


class Tensorboards:
    """Commands that show what trials reported; "" where no files of theirs can be seen from here. What is asked of the master is
    asked once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._experiments: dict[int, Json] = {}

    def of_trial(self, trial: Json) -> str:
        number = int(trial["experimentId"])
        if number not in self._experiments:
            self._experiments[number] = experiments.get(self._session, number)
        return self.of(self._experiments[number], int(trial["id"]))

    def of(self, about: Json, trial_id: Optional[int] = None) -> str:
        """Of all trials of an experiment, or of one. ``about``: the master's answer for the experiment."""
        config = TrialConfig.from_json(about.get("config") or {}).checkpoint_storage
        try:
            path = os.path.join(str(storage.build(config)), self._cluster_id, "tensorboard")
        except errors.DethpcError:
            return ""
        path = os.path.join(path, "experiment", str(about["experiment"]["id"]))
        if trial_id is not None:
            path = os.path.join(path, "trial", str(trial_id))
        return f"tensorboard --logdir {shlex.quote(path)}" if os.path.isdir(path) else ""

    @cached_property
    def _cluster_id(self) -> str:
        return str(cluster.master(self._session)["clusterId"])


def reason(noun: Json) -> str:
    """Why it is in its state, in words; "" when the master has nothing to say."""
    return str(noun.get("reason") or "")


def warnings(trials: Sequence[Json]) -> list[str]:
    """What is amiss with what trials report, each once: ``trial 14: ...`` or ``3 trials: ...``."""
    ids_of: dict[str, list[Any]] = {}
    for trial in trials:
        if trial.get("warning"):
            ids_of.setdefault(trial["warning"], []).append(trial["id"])
    return [f"{f'trial {ids[0]}' if len(ids) == 1 else f'{len(ids)} trials'}: {text}" for text, ids in ids_of.items()]


def job(run: Json) -> str:
    """``28 on n0,n1 (RUNNING, 8 slots)``; "" for what has no job."""
    if not run.get("jobId"):
        return ""
    where = f" on {','.join(run['nodes'])}" if run.get("nodes") else ""
    return f"{run['jobId']}{where} ({run['state']}, {output.plural(run['slots'], 'slot')})"


def used(run: Json) -> str:
    """``CPU 83% of 8, memory 12.3 GiB of 64.0 GiB (19%), GPU 74% of 2, their memory 51%, in 1h02m``; "" where nobody measured."""
    usage = run.get("usage")
    if not usage:
        return ""
    if usage["cpu"] is None:
        parts = [f"CPU {output.duration(usage['cpuSeconds'])}"]
    else:
        parts = [f"CPU {output.percent(usage['cpu'])} of {usage['cpus']}"]
    memory = f"memory {output.size(usage['memoryBytes'])}"
    if usage["memory"] is not None:
        memory += f" of {output.size(usage['memoryGivenBytes'])} ({output.percent(usage['memory'])})"
    parts.append(memory)
    if usage["gpu"] is not None:
        parts.append(f"GPU {output.percent(usage['gpu'])} of {usage['gpus']}")
        parts.append(f"their memory {output.percent(usage['gpuMemory'])}")
    return f"{', '.join(parts)}, in {output.duration(usage['seconds'])}"


def advice(run: Json) -> list[tuple[str, str]]:
    """A field for each thing of which most lay idle."""
    return [("Advice", text) for text in (run.get("usage") or {}).get("advice") or ()]


def waiting(reason: Json) -> str:
    """Why trials wait and what would start them sooner; how many, when it is said of several."""
    many = f"{reason['count']} trials: " if reason.get("count", 1) > 1 else ""
    start = f". Expected to start at {output.when(reason['startTime'])}" if reason.get("startTime") else ""
    return f"{many}{reason['text']}{start}"


def attempt_table(attempts: Sequence[Json]) -> tables.Table:
    """Each start of a trial, and why it ended; no rows for a trial that has started once and ended well, or still trains."""
    started = [{"number": n, **one} for n, one in enumerate((a for a in attempts if a["startTime"]), 1)]
    if len(started) == 1 and started[0]["end"] in ("", "COMPLETED"):
        started = []
    columns = [
        tables.Column("Attempt", "number", tables.COUNT),
        tables.Column("Job", "jobId"),
        tables.Column("Nodes", lambda one: ",".join(one["nodes"]), least=8),
        tables.Column("Steps", _trained),
        tables.Column("Started", "startTime", tables.AGE),
        tables.Column("Took", _took, tables.DURATION),
        tables.Column("End", lambda one: one["end"] or "RUNNING", tables.STATE),
        tables.Column("Reason", "reason", least=16),
    ]
    return tables.Table(columns, started)


def _trained(attempt: Json) -> str:
    """``4-12``: the steps that it started from, and those of its last report."""
    last = attempt["toSteps"]
    return f"{attempt['fromSteps']}-{attempt['fromSteps'] if last is None else last}"


def _took(attempt: Json) -> float:
    """Seconds, so far for one that runs."""
    end = seconds(attempt["endTime"]) if attempt["endTime"] else output.now()
    return end - seconds(attempt["startTime"])


def workload_rows(workloads: Iterable[Json]) -> list[Json]:
    """One row for each report."""
    rows: list[Json] = []
    for workload in workloads:
        for kind in ("training", "validation", "checkpoint"):
            about = workload.get(kind)
            if about is None:
                continue
            if kind == "checkpoint":
                what: Any = f"{about.get('uuid') or ''} {output.state(about.get('state'))}"
            else:
                what = (about.get("metrics") or {}).get("avgMetrics")
            steps, at = about.get("totalBatches"), about.get("endTime")
            rows.append({"steps": steps, "reported": at, "kind": kind, "what": what})
    return rows


_WHAT = tables.Kind(
    lambda what: output.values(what) if isinstance(what, dict) else what,
    lambda what: output.compact(what) if isinstance(what, dict) else what,
    piped=lambda what: output.values(what) if isinstance(what, dict) else what,
)
WORKLOADS = [
    tables.Column("Steps", "steps", tables.COUNT),
    tables.Column("Reported", "reported", tables.AGE, rank=1),
    tables.Column("Kind", "kind"),
    tables.Column("What", "what", _WHAT, least=16),
]


# --- the search

_NAMED = 4  # how many trials of a rung are named


def how_far(about: Json) -> str:
    """``34%, about 0:12:05 to go (until 2026-03-01T12:00:00)``; how long only while that can be estimated. ``about``: the master's
    answer for the experiment, with ``search``."""
    experiment, search = about["experiment"], about["search"]
    if progress(experiment, about.get("config") or {}) is None:
        return "- (its trials have no length that the configuration or the code tells)"
    if experiment.get("endTime"):
        return output.percent(experiment.get("progress"))
    done, end = output.percent(search.get("progress")), search.get("estimatedEndTime")
    if not end:
        return done
    import datetime

    rest = moment(end) - datetime.datetime.now(datetime.timezone.utc)
    return f"{done}, about {datetime.timedelta(seconds=max(0, round(rest.total_seconds())))} to go (until {output.when(end)})"


def rung_table(search: Json) -> tables.Table:
    """One row for each rung, with its best trials: ``12: 0.25 ↑`` is trial 12 with its value, and it went on."""
    rows = [
        {
            "bracket": number,
            "rung": rung_number,
            "length": rung["length"],
            "entered": f"{rung['entered']}/{rung['places']}" if rung.get("places") else rung["entered"],
            "wentOn": rung["wentOn"],
            "cutOff": rung.get("cutOff"),
            "best": _named(rung["trials"], rung["entered"]),
        }
        for number, bracket in enumerate(search["brackets"])
        for rung_number, rung in enumerate(bracket["rungs"])
    ]
    columns = [
        tables.Column("Bracket", "bracket", tables.COUNT),
        tables.Column("Rung", "rung", tables.COUNT),
        tables.Column((search.get("unit") or "length").capitalize(), "length", tables.METRIC),
        tables.Column("Entered", "entered", tables.COUNT),
        tables.Column("Went on", "wentOn", tables.COUNT),
        tables.Column("Cut-off", "cutOff", tables.METRIC),
        tables.Column("Best", "best", least=16),
    ]
    return tables.Table(columns, rows)


def _named(trials: Sequence[Json], entered: int) -> str:
    best = [
        f"{trial['trialId']}: {'none' if trial['value'] is None else output.digits(trial['value'])}"
        + (" ↑" if trial["wentOn"] else "")
        for trial in trials[:_NAMED]
    ]
    return ", ".join(best + ([f"and {entered - len(best)} more"] if best and entered > len(best) else []))


def place_columns(search: Json) -> list[tables.Column]:
    return [
        tables.Column("Trial", "trialId", tables.COUNT),
        tables.Column("State", output.standing, tables.STANDING),
        tables.Column("Bracket", "bracket", tables.COUNT),
        tables.Column("Rung", "rung", tables.COUNT),
        tables.Column((search.get("unit") or "length").capitalize(), "length", tables.METRIC),
        tables.Column(search.get("metric") or "Metric", "value", tables.METRIC),
        tables.Column("Next", "nextLength", tables.METRIC),
        tables.Column("From", "parentTrialId", tables.COUNT, rank=2),
        tables.Column("Reason", "reason", rank=1, least=16),
    ]


def _print_experiment(about: Json, *, search: bool) -> None:
    e, config, shown = about["experiment"], about.get("config") or {}, about["trials"]
    searcher, unlisted = SearcherConfig.of(config), int(about["experiment"].get("numTrials") or 0) - len(shown)
    of_all = [str(e["warning"])] if unlisted > 0 and e.get("warning") else []
    output.print_fields(
        [
            ("Experiment", e["id"]),
            ("Name", e.get("name")),
            ("Description", e.get("description")),
            ("State", output.standing(e)),
            ("Reason", reason(e)),
            *(("Warning", text) for text in of_all or warnings(shown)),
            *(("Waiting", waiting(group)) for group in about["waiting"]["groups"]),
            ("Progress", how_far(about)),
            ("Owner", e.get("username")),
            ("Started", output.when(e.get("startTime"))),
            ("Ended", output.when(e.get("endTime"))),
            ("Searcher", f"{searcher.name} {searcher.metric}".strip()),
            ("Resource pool", e.get("resourcePool")),
            ("Python", interpreter.describe(about)),
            ("TensorBoard", about["tensorboard"]),
            ("Labels", ", ".join(sorted(e.get("labels") or []))),
            ("Archived", "yes" if e.get("archived") else ""),
        ]
    )
    if not shown:
        output.echo("No trials yet.")
        return
    if about["search"]["brackets"]:
        output.echo()
        tables.show(rung_table(about["search"]))
    if search:
        output.echo()
        tables.show(tables.Table(place_columns(about["search"]), about["search"]["trials"]))
    output.echo()
    more = f"the {len(shown)} best; {unlisted} more: det trial list {e['id']}" if unlisted > 0 else ""
    tables.show(trial_table(about, shown, more=more))
    for trial in shown:
        if trial.get("workloads"):
            output.echo()
            tables.show(tables.Table(WORKLOADS, workload_rows(trial["workloads"]), title=f"Trial {trial['id']}"))


_EXPERIMENT = [
    tables.Column("id", "id"),
    tables.Column("state", "state", tables.STATE),
    *(tables.Column(name, name) for name in ("progress", "startTime", "endTime", "name", "description", "archived")),
    tables.Column("resourcePool", "resourcePool"),
    tables.Column("labels", lambda e: output.compact(e.get("labels"))),
    tables.Column("reason", "reason"),
]


def _write_csv(answers: Sequence[Json], outdir: Optional[Path], *, search: bool) -> None:
    """experiments.csv, trials.csv and, where asked for, search.csv and workloads.csv; without ``outdir`` all on stdout."""
    every = [{"experiment": about["experiment"]["id"], **trial} for about in answers for trial in about["trials"]]
    of = tables.Column("Experiment", "experiment")
    written = [
        ("experiments", tables.Table(_EXPERIMENT, [about["experiment"] for about in answers])),
        ("trials", tables.Table([of, *trial_columns(None, every, {})], every)),
    ]
    if search:
        places = [{"experiment": a["experiment"]["id"], **place} for a in answers for place in a["search"]["trials"]]
        written.append(("search", tables.Table([of, *place_columns({})], places)))
    if any("workloads" in trial for trial in every):
        reports = [{"trial": t["id"], **row} for t in every for row in workload_rows(t.get("workloads") or [])]
        written.append(("workloads", tables.Table([tables.Column("Trial", "trial"), *WORKLOADS], reports)))
    if outdir is None:
        for n, (_, table) in enumerate(written):
            if n:
                output.echo()
            tables.show(table, tables.Layout(as_csv=True))
        return
    outdir.mkdir(parents=True, exist_ok=True)
    for name, table in written:
        with open(outdir / f"{name}.csv", "w", newline="") as file:
            tables.write_csv(table.columns, table.rows, file)
        output.echo(outdir / f"{name}.csv")
