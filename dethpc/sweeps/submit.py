"""An experiment of a Python function: pickled by submitit's cloudpickle, so that functions of notebooks and closures go along."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Optional, Union

from dethpc import errors
from dethpc.client import Session, address
from dethpc.client.login import token_at
from dethpc.client.nouns import experiments
from dethpc.client.session import Json
from dethpc.context.collect import collect
from dethpc.sweeps import own_master
from dethpc.sweeps.follow import Sweep
from dethpc.sweeps.mistakes import told_as_called
from dethpc.sweeps.space import dialect

_CALL = "call.py"


def sweep(
    fn: Callable[..., Any],
    space: Mapping[str, Any],
    *,
    searcher: str = "random",
    metric: str = "loss",
    smaller_is_better: bool = True,
    max_trials: Optional[int] = None,
    name: Optional[str] = None,
    slots: int = 1,
    pool: Optional[str] = None,
    max_restarts: int = 0,
    config: Optional[Mapping[str, Any]] = None,
    include: Union[str, Path, Iterable[Union[str, Path]]] = (),
    python: Optional[str] = None,
    master: Optional[str] = None,
    **searcher_fields: Any,
) -> Sweep:
    """Search ``space`` for the hyperparameters with which ``fn`` returns the least ``metric``; returns at once. ::

        def fn(hparams):
            return (hparams["x"] - 3) ** 2

        best = dethpc.sweep(fn, {"x": (-10.0, 10.0)}, max_trials=20).wait().best

    ``fn(hparams)`` returns a number, or a dict of metrics with ``metric`` in it. ``fn(hparams, core)`` also gets the Core API's
    context: it may report as it trains, and be stopped early (``core.preempt.should_preempt()``). A function that reports for
    itself returns None. ``space``: see ``dethpc.sweeps.space``.

    ``searcher`` and further keywords (``max_time``, ``time_metric``, ``max_concurrent_trials``, ...) are the fields of a
    configuration's ``searcher``; ``max_trials`` is 10 where a searcher needs it. ``slots`` and ``pool``: what a trial runs on;
    ``config``: further fields of the configuration; ``include``: files and directories that lie beside the function; ``python``:
    the interpreter on the nodes, default: this one. ``master``: its URL; default: your own, started when none runs. Trials are
    Slurm jobs, or processes of this machine where there is no Slurm.

    Raises ConfigError, ContextError when the function cannot be pickled, MasterUnreachable.
    """
    if not callable(fn):
        raise TypeError(f"fn is what a trial calls with its hyperparameters, not {fn!r:.100}")
    section = {"name": searcher, "metric": metric, "smaller_is_better": smaller_is_better, **searcher_fields}
    if max_trials is not None or searcher not in ("grid", "single", "custom"):
        section["max_trials"] = 10 if max_trials is None else max_trials
    if searcher == "single":
        section.pop("max_trials", None)
    whole = {
        "name": name or getattr(fn, "__name__", type(fn).__name__),
        "entrypoint": [python or sys.executable, _CALL],
        "hyperparameters": dialect(space),
        "searcher": section,
        "resources": {"slots_per_trial": slots, **({"resource_pool": pool} if pool else {})},
        "max_restarts": max_restarts,
    }
    text = json.dumps(_merged(whole, config or {}))
    with tempfile.TemporaryDirectory(prefix="dethpc-sweep-") as folder:  # 0700: what is pickled may be private
        _pack(fn, metric, Path(folder))
        files = collect(Path(folder), _paths(include)).model_definition()
    session = _session(master)
    with told_as_called(space, config or {}):
        answer = experiments.create(session, text, files)
    return Sweep(session, int(answer["experiment"]["id"]))


def _paths(include: Union[str, Path, Iterable[Union[str, Path]]]) -> list[Path]:
    return [Path(path) for path in ([include] if isinstance(include, (str, Path)) else include)]


def attach(experiment_id: int, *, master: Optional[str] = None) -> Sweep:
    """The sweep of an experiment that is there already: after Ctrl-C, or in another notebook. Raises NotFound."""
    if not isinstance(experiment_id, int):
        raise TypeError(f"an experiment is known by its number here, not by {experiment_id!r:.100}")
    session = _session(master)
    sweep = Sweep(session, experiment_id)
    sweep.refresh()
    return sweep


def _pack(fn: Callable[..., Any], metric: str, folder: Path) -> None:
    """Raises ContextError."""
    from submitit.core.utils import DelayedSubmission

    try:
        DelayedSubmission(fn).dump(folder / "fn.pickle")
    except Exception as error:  # whatever the objects it holds raise
        raise errors.ContextError(
            f"{getattr(fn, '__qualname__', repr(fn)):.100} cannot be pickled: {type(error).__name__}: {error}. "
            "Make in the function what cannot be sent: open files, locks, connections, generators"
        ) from error
    path = [str(Path(entry).absolute()) for entry in sys.path]
    (folder / "sweep.json").write_text(json.dumps({"metric": metric, "path": path}))
    (folder / _CALL).write_text(Path(__file__).with_name(_CALL).read_text())


def _merged(under: Json, over: Mapping[str, Any]) -> Json:
    """``over`` wins; mappings are merged."""
    merged = dict(under)
    for name, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merged(merged[name], value) if both else value
    return merged


def _session(master: Optional[str]) -> Session:
    """With the master that was named, else one's own, started when it does not answer."""
    url = address.canonical(master) if master else address.master_url()
    if master is None and not _answers(url):
        own_master.start()
        url = address.master_url()
    if url is None:
        raise errors.MasterUnreachable("no master is known: set DET_MASTER, or start one with `det master up`")
    # One's own master may move to another port or login node while a sweep waits: its home says where it is.
    moves = master is None and not os.environ.get("DET_MASTER")
    return Session(address.own_finder() if moves else url, token_at(url))


def _answers(url: Optional[str]) -> bool:
    if url is None:
        return False
    try:
        Session(url, address.token(url), timeout=5.0, retries=0).get("/api/v1/master")
    except errors.DethpcError:
        return False
    return True
