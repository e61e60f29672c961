"""What everything costs, beside what a user would pick instead.

Each module is a command: ``python -m benchmarks.NAME [--quick] [--json FILE]``. It prints its rows (``frame.Row``): ours, the
peers', the limit and the ratio, measured in one run with windows that take turns. ``python -m benchmarks`` runs them all and keeps
their figures in one file; ``python -m benchmarks.page`` makes docs/benchmarks.md of it. No figure decides a test.
"""

from __future__ import annotations

BENCHES: dict[str, tuple[str, ...]] = {
    "Answers": ("start_up", "answers", "tls", "proxy"),
    "Logs": ("log_search",),
    "Metrics": ("store_ingest", "metrics_in", "reporting"),
    "The file system": ("metadata", "idle"),
    "Slurm": ("submission", "first_step", "gap", "rpcs", "busy_day", "containers"),
    "Size": (
        "size",
        "request_files",
        "nouns",
        "pages",
        "decisions",
        "queue_decisions",
        "master_memory",
        "simulation",
        "hostile_files",
        "garbage",
    ),
    "Load": ("load",),
    "Training": ("trainer_overhead", "checkpoint", "stores"),
}
"""The commands under the headings of the page, in its order."""

ENDURANCE = ("faults", "mutations", "monkey", "fuzz", "search_quality")
"""What runs for an hour or tells how good something is, not how fast: nothing here has a limit. Each has options of its own;
``search_quality`` writes its section by itself (``benchmarks/sections``), the sections of the others are written by hand."""

FRAME = (
    "frame",
    "setting",
    "page",
    "plot",
    "reporting_trials",
    "reporting_clients",
    "big_home",
    "creation",
    "dashboards",
    "stand_in",
)
"""What the commands share, and what shows their figures."""
