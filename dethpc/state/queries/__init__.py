"""What readers ask of the database: lists with filters, order and pages, and figures about what a page shows.

Every function takes a connection of ``SqlStore.read`` and keeps no state. Pages are cut and sorted by the database along its
indexes, so a page of a list of 100,000 trials costs what its own rows cost. One module for each noun.
"""

from dethpc.state.queries.checkpoints import (
    CHECKPOINT_KEYS,
    CheckpointFilter,
    CheckpointOrigin,
    checkpoint,
    checkpoint_origins,
    checkpoint_seconds,
    checkpoints_of_trial,
    list_checkpoints,
)
from dethpc.state.queries.experiments import (
    EXPERIMENT_KEYS,
    ExperimentFigures,
    ExperimentFilter,
    ended_last,
    experiment,
    experiment_figures,
    experiment_of_job,
    labels,
    list_experiments,
    names_of_experiments,
)
from dethpc.state.queries.metrics import metric_names, metrics_after, series, validation_history, workloads
from dethpc.state.queries.page import Order, Page
from dethpc.state.queries.runs import (
    attempt,
    attempts_of_task,
    attempts_of_trial,
    jobs_of_runs,
    nodes,
    run,
    runs_of_task,
    runs_of_trial,
    runs_with_attempts,
    training_times,
)
from dethpc.state.queries.searches import search, search_notes
from dethpc.state.queries.tasks import live_runs, task, trials_of_tasks
from dethpc.state.queries.trials import (
    TRIAL_KEYS,
    TrialFigures,
    best_trials,
    list_trials,
    states_of_trials,
    trial,
    trial_figures,
    trial_is_over,
    trials_by_id,
    trials_of_experiment,
)

__all__ = [
    "CHECKPOINT_KEYS",
    "CheckpointFilter",
    "CheckpointOrigin",
    "EXPERIMENT_KEYS",
    "ExperimentFigures",
    "ExperimentFilter",
    "Order",
    "Page",
    "TRIAL_KEYS",
    "TrialFigures",
    "attempt",
    "attempts_of_task",
    "attempts_of_trial",
    "best_trials",
    "checkpoint",
    "checkpoint_origins",
    "checkpoint_seconds",
    "checkpoints_of_trial",
    "ended_last",
    "experiment",
    "experiment_figures",
    "experiment_of_job",
    "jobs_of_runs",
    "labels",
    "list_checkpoints",
    "list_experiments",
    "list_trials",
    "live_runs",
    "metric_names",
    "metrics_after",
    "names_of_experiments",
    "nodes",
    "run",
    "runs_of_task",
    "runs_of_trial",
    "runs_with_attempts",
    "search",
    "search_notes",
    "series",
    "states_of_trials",
    "training_times",
    "trial",
    "trial_figures",
    "task",
    "trial_is_over",
    "trials_by_id",
    "trials_of_experiment",
    "trials_of_tasks",
    "validation_history",
    "workloads",
]
