"""One file per noun. A handler takes a ``PageRequest`` and returns a ``Page``, a ``Goto`` or another answer."""

from __future__ import annotations

from dethpc.web.access import May
from dethpc.web.asked import Handler
from dethpc.web.pages import (
    checkpoints,
    cluster,
    code,
    compare,
    doctor,
    drafts,
    entry,
    experiment,
    experiments,
    launch,
    logs,
    queue,
    series,
    sessions,
    tasks,
    trial,
    webhooks,
)

ROUTES: list[tuple[str, str, Handler]] = [
    ("GET", "/", entry.home),
    ("GET", "/login", entry.login),
    ("POST", "/login", entry.log_in),
    ("GET", "/enter", entry.enter),
    ("POST", "/logout", entry.log_out),
    ("GET", "/experiments", experiments.listing),
    ("POST", "/experiments/act", experiments.act),
    ("GET", "/experiments/{experiment:int}", experiment.overview),
    ("POST", "/experiments/{experiment:int}/act", experiment.act),
    ("POST", "/experiments/{experiment:int}/edit", experiment.edit),
    ("GET", "/experiments/{experiment:int}/series.json", series.of_experiment),
    ("GET", "/experiments/{experiment:int}/points.json", series.points),
    ("GET", "/experiments/{experiment:int}/code", code.page),
    ("GET", "/experiments/{experiment:int}/code/file", code.raw),
    ("GET", "/experiments/{experiment:int}/fork", drafts.fork),
    ("POST", "/experiments/{experiment:int}/fork", drafts.fork),
    ("GET", "/experiments/{experiment:int}/continue", drafts.go_on),
    ("POST", "/experiments/{experiment:int}/continue", drafts.go_on),
    ("GET", "/experiments/{experiment:int}/{tab}", experiment.tab),
    ("GET", "/trials/{trial:int}", trial.overview),
    ("POST", "/trials/{trial:int}/act", trial.act),
    ("GET", "/trials/{trial:int}/series.json", series.of_trial),
    ("GET", "/trials/{trial:int}/logs", logs.of_trial),
    ("GET", "/trials/{trial:int}/logs/text", logs.text),
    ("GET", "/trials/{trial:int}/checkpoints", trial.checkpoints),
    ("GET", "/trials/{trial:int}/timeline", trial.timeline),
    ("GET", "/trials/{trial:int}/profiler", trial.profiler),
    ("GET", "/trials/{trial:int}/continue", drafts.continue_trial),
    ("POST", "/trials/{trial:int}/continue", drafts.continue_trial),
    ("GET", "/tasks", tasks.listing),
    ("GET", "/tasks/new", launch.command),
    ("POST", "/tasks/new", launch.command),
    ("GET", "/tasks/{task}", tasks.overview),
    ("GET", "/tasks/{task}/logs", logs.of_task),
    ("GET", "/tasks/{task}/logs/text", logs.text),
    ("GET", "/tasks/{task}/configuration", tasks.configuration),
    ("POST", "/tasks/{task}/act", tasks.act),
    ("POST", "/tensorboards", launch.tensorboard),
    ("GET", "/interactive/{task}/{rest:path}", tasks.published),
    ("GET", "/compare", compare.page),
    ("GET", "/compare/series.json", series.of_trials),
    ("GET", "/checkpoints", checkpoints.listing),
    ("GET", "/checkpoints/{uuid}", checkpoints.one),
    ("GET", "/checkpoints/{uuid}/archive", checkpoints.archive),
    ("POST", "/checkpoints/{uuid}/act", checkpoints.act),
    ("GET", "/queue", queue.listing),
    ("POST", "/queue/act", queue.act),
    ("GET", "/cluster", cluster.overview),
    ("GET", "/doctor", doctor.page),
    ("POST", "/doctor/act", doctor.act),
    ("GET", "/sessions", sessions.listing),
    ("POST", "/sessions/act", sessions.act),
    ("GET", "/webhooks", webhooks.listing),
    ("GET", "/webhooks/new", webhooks.new),
    ("POST", "/webhooks/new", webhooks.new),
    ("GET", "/webhooks/{webhook:int}", webhooks.one),
    ("POST", "/webhooks/{webhook:int}/act", webhooks.act),
    ("GET", "/about", entry.about),
]


def needed(handler: Handler, action: str) -> May:
    """What a form has to show before ``handler`` does ``action``."""
    if handler in (entry.log_in, entry.log_out):
        return May.READ
    if handler in (drafts.fork, drafts.go_on, drafts.continue_trial):
        return May.RUN if action == "create" else May.READ
    if handler in (launch.command, launch.tensorboard) or (handler is tasks.act and action == tasks.OPEN):
        return May.RUN
    return May.ACT
