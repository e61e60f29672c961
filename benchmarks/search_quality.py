"""How good a search is, on problems whose answer is known: statistics over many seeds, in simulated time.

    python -m benchmarks.search_quality [--seeds 50] [--jobs 2] [--write]

Our methods run in the production engine on the simulated cluster. Optuna's and Syne Tune's run in an asynchronous loop over
their own ask-and-tell interfaces, with as many workers, the same budget, the same learning curves and as many validations. What
is not installed is left out with a note; the plot needs matplotlib. ``--write`` keeps the table for ``benchmarks.page`` and puts
the plot into docs/.
"""

from __future__ import annotations

import argparse
import datetime
import heapq
import importlib.metadata
import math
import random
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Trial
from dethpc.simulator import Pace, PowerLaw, Simulation, Site

ROOT = Path(__file__).parents[1]
SECTION = ROOT / "benchmarks" / "sections" / "search_quality.md"

LENGTH, DIVISOR, RUNGS = 64, 4, 4  # trials are compared after 1, 4, 16 and 64 steps
LEVELS = [LENGTH // DIVISOR**i for i in reversed(range(RUNGS))]
WORKERS = 8
BUDGET = 8 * LENGTH  # seconds; a step takes one second on average
SPREAD = 0.2  # standard deviation of the logarithm of a trial's speed
RARE = 0.01  # the target is what so large a share of random trials reaches

Hparams = Mapping[str, Any]


# --- problems -----------------------------------------------------------------------------------------------------------


class Problem:
    """A loss to minimise. ``loss`` is without noise; trials see it with noise of standard deviation ``noise``."""

    name = ""
    space: dict[str, Any] = {}
    noise = 0.0
    optimum = 0.0

    def loss(self, hparams: Hparams, steps: int) -> float:
        raise NotImplementedError

    def observe(self, hparams: Hparams, steps: int, rng: random.Random) -> float:
        return self.loss(hparams, steps) + rng.gauss(0, self.noise)


def unit_cube(dimensions: int) -> dict[str, Any]:
    return {f"x{i}": {"type": "double", "minval": 0.0, "maxval": 1.0} for i in range(dimensions)}


class Curves(Problem):
    """Power laws: hyperparameters that end well also begin well."""

    name = "power laws"
    noise = 0.02
    optimum = 0.05 + 0.85 * (1 + LENGTH) ** -0.7
    space = {
        "lr": {"type": "log", "minval": -5, "maxval": 0, "base": 10},
        "decay": {"type": "double", "minval": 0.0, "maxval": 1.0},
        "width": {"type": "double", "minval": 0.0, "maxval": 1.0},
        "optimizer": {"type": "categorical", "vals": ["adam", "sgd", "lamb"]},
    }

    def __init__(self) -> None:
        self._model = PowerLaw(self.space, seed=1, noise=0)
        self.optimum = min(self._model.validate(LENGTH, sample, 0, LENGTH) for sample in self._grid())

    def _grid(self) -> Iterator[dict[str, Any]]:
        """Coordinate-wise, since the model adds up its hyperparameters."""
        best: dict[str, Any] = {"lr": 1e-3, "decay": 0.5, "width": 0.5, "optimizer": "adam"}
        fine = [i / 1000 for i in range(1001)]
        axes: dict[str, list[Any]] = {"lr": [10 ** (-5 + 5 * x) for x in fine], "decay": fine, "width": fine}
        axes["optimizer"] = ["adam", "sgd", "lamb"]
        for name, values in axes.items():
            best[name] = min(values, key=lambda v: self._model.validate(LENGTH, {**best, name: v}, 0, LENGTH))
        yield best

    def loss(self, hparams: Hparams, steps: int) -> float:
        return self._model.validate(steps, hparams, 0, steps)


class LateBloomers(Problem):
    """Slow learners end best: losses cross, and early values mislead. Hard for every method that stops early."""

    name = "crossing curves"
    noise = 0.01
    space = {"speed": {"type": "double", "minval": 0.0, "maxval": 1.0}, **unit_cube(2)}
    optimum = 0.1

    def loss(self, hparams: Hparams, steps: int) -> float:
        speed, miss = hparams["speed"], sum(abs(hparams[f"x{i}"] - 0.4) for i in range(2))
        floor: float = 0.1 + 0.15 * speed + 0.5 * miss
        return (
            floor
            + (1 - floor) * math.exp(-(1 + 8 * speed) * steps / LENGTH * 6)
            - (1 - floor) * math.exp(-(1 + 8 * speed) * 6)
        )


class Hartmann(Problem):
    """The Hartmann function with a fidelity that shifts its weights: Kandasamy et al., "Multi-fidelity Bayesian Optimisation
    with Continuous Approximations", ICML 2017, appendix. The fidelity is the share of the full length."""

    noise = 0.05
    weights = (1.0, 1.2, 3.0, 3.2)
    a: Sequence[Sequence[float]]
    p: Sequence[Sequence[float]]

    def loss(self, hparams: Hparams, steps: int) -> float:
        low = 0.1 * (1 - steps / LENGTH)
        total = 0.0
        for weight, row, centre in zip(self.weights, self.a, self.p, strict=True):
            distance = sum(a * (hparams[f"x{i}"] - p) ** 2 for i, (a, p) in enumerate(zip(row, centre, strict=True)))
            total -= (weight - low) * math.exp(-distance)
        return total


class Hartmann3(Hartmann):
    name = "Hartmann 3"
    space = unit_cube(3)
    optimum = -3.86278
    a = ((3, 10, 30), (0.1, 10, 35), (3, 10, 30), (0.1, 10, 35))
    p = ((0.3689, 0.1170, 0.2673), (0.4699, 0.4387, 0.7470), (0.1091, 0.8732, 0.5547), (0.0381, 0.5743, 0.8828))


class Hartmann6(Hartmann):
    name = "Hartmann 6"
    space = unit_cube(6)
    optimum = -3.32237
    a = ((10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14), (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14))
    p = (
        (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
        (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
        (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
        (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
    )


PROBLEMS: tuple[type[Problem], ...] = (Curves, LateBloomers, Hartmann3, Hartmann6)


def target_of(problem: Problem) -> float:
    """What the best ``RARE`` share of fully trained random trials reaches."""
    from dethpc.config.sections.hyperparameters import parse_space
    from dethpc.searcher.sampling import sample

    space = parse_space(problem.space)
    finals = sorted(problem.loss(sample(space, 999, i), LENGTH) for i in range(20000))
    return finals[int(RARE * len(finals))]


# --- methods ------------------------------------------------------------------------------------------------------------


class Done(NamedTuple):
    """A trial that trained to the full length: when, and its loss without noise."""

    at: float
    loss: float


Found = dict[tuple[str, str], list[list[Done]]]
"""By problem and method: one list for each seed."""


class Workload:
    """A problem as training code."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem, self._seed = problem, seed

    def begin(self, hparams: Hparams, seed: int) -> None: ...

    def train(self, weights: Any, hparams: Hparams, start: int, end: int) -> None: ...

    def validate(self, weights: Any, hparams: Hparams, index: int, steps: int) -> float:
        return self._problem.observe(hparams, steps, random.Random(f"noise:{self._seed}:{index}:{steps}"))


def ours(problem: Problem, seed: int, **searcher: Any) -> list[Done]:
    config = {
        "entrypoint": "train",
        "searcher": {
            "metric": "loss",
            "smaller_is_better": True,
            "max_trials": 10**6,
            "max_concurrent_trials": WORKERS,
            "time_metric": "batches",
            "max_time": LENGTH,
            "divisor": DIVISOR,
            "max_rungs": RUNGS,
            **searcher,
        },
        "hyperparameters": problem.space,
        "resources": {"slots_per_trial": 1},
    }
    pace = Pace(startup=0, spread=SPREAD, length=LENGTH, validation_period=None)
    simulation = Simulation(Site(1, WORKERS), pace, Workload(problem, seed), seed=seed)
    number = simulation.create(ExperimentConfig.from_json(config))
    simulation.run(until=BUDGET)
    full: list[Trial] = [t for t in simulation.result(number).trials if t.ended_at and t.steps_completed >= LENGTH]
    return sorted(Done(t.ended_at or 0.0, problem.loss(t.hparams, LENGTH)) for t in full)


class Rival(NamedTuple):
    """Another library's search: ``ask`` gives a trial and its hyperparameters, ``tell`` takes a value and says: go on?"""

    ask: Callable[[], tuple[Any, dict[str, Any]]]
    tell: Callable[[Any, int, float], bool]


def theirs(problem: Problem, seed: int, rival: Rival) -> list[Done]:
    """``WORKERS`` workers in virtual time; each begins another trial as soon as its own has ended."""
    done: list[Done] = []
    heap: list[tuple[float, int, Any, dict[str, Any], int, float]] = []

    def begin(at: float, index: int) -> None:
        trial, hparams = rival.ask()
        pace = math.exp(random.Random(f"speed:{seed}:{index}").gauss(0, SPREAD))
        heapq.heappush(heap, (at + LEVELS[0] * pace, index, trial, hparams, 0, pace))

    for index in range(WORKERS):
        begin(0.0, index)
    count = WORKERS
    while heap and heap[0][0] <= BUDGET:
        at, index, trial, hparams, level, pace = heapq.heappop(heap)
        steps = LEVELS[level]
        noise = random.Random(f"noise:{seed}:{index}:{steps}")
        goes_on = rival.tell(trial, steps, problem.observe(hparams, steps, noise))
        if steps == LENGTH:
            done.append(Done(at, problem.loss(hparams, LENGTH)))
        if goes_on and steps < LENGTH:
            heapq.heappush(heap, (at + (LEVELS[level + 1] - steps) * pace, index, trial, hparams, level + 1, pace))
        else:
            begin(at, count)
            count += 1
    return done


def optuna_search(pruner: str) -> Callable[[Problem, int], list[Done]]:
    def search(problem: Problem, seed: int) -> list[Done]:
        import optuna
        from optuna import distributions as d

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        made: Any
        if pruner == "SuccessiveHalving":
            made = optuna.pruners.SuccessiveHalvingPruner(min_resource=LEVELS[0], reduction_factor=DIVISOR)
        else:
            made = optuna.pruners.HyperbandPruner(min_resource=LEVELS[0], max_resource=LENGTH, reduction_factor=DIVISOR)
        study = optuna.create_study(
            study_name=f"s{seed}", sampler=optuna.samplers.RandomSampler(seed=seed), pruner=made
        )
        space: dict[str, Any] = {}
        for name, hp in problem.space.items():
            if hp["type"] == "categorical":
                space[name] = d.CategoricalDistribution(hp["vals"])
            elif hp["type"] == "log":
                space[name] = d.FloatDistribution(hp["base"] ** hp["minval"], hp["base"] ** hp["maxval"], log=True)
            else:
                space[name] = d.FloatDistribution(hp["minval"], hp["maxval"])

        def ask() -> tuple[Any, dict[str, Any]]:
            trial = study.ask(space)
            return trial, dict(trial.params)

        def tell(trial: Any, steps: int, value: float) -> bool:
            trial.report(value, steps)
            if steps == LENGTH:
                trial.should_prune()  # it enters the last rung, as the others' do
                study.tell(trial, value)
                return False
            if trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                return False
            return True

        return theirs(problem, seed, Rival(ask, tell))

    return search


def syne_tune_search(problem: Problem, seed: int) -> list[Done]:
    import logging

    import numpy
    from syne_tune import config_space as cs
    from syne_tune.backend.trial_status import Trial as SyneTrial
    from syne_tune.optimizer.baselines import ASHA
    from syne_tune.optimizer.scheduler import SchedulerDecision

    logging.getLogger("syne_tune").setLevel(logging.ERROR)
    numpy.random.seed(seed)
    space: dict[str, Any] = {}
    for name, hp in problem.space.items():
        if hp["type"] == "categorical":
            space[name] = cs.choice(hp["vals"])
        elif hp["type"] == "log":
            space[name] = cs.loguniform(hp["base"] ** hp["minval"], hp["base"] ** hp["maxval"])
        else:
            space[name] = cs.uniform(hp["minval"], hp["maxval"])
    scheduler = ASHA(
        space,
        metric="loss",
        time_attr="steps",
        max_t=LENGTH,
        grace_period=LEVELS[0],
        reduction_factor=DIVISOR,
        random_seed=seed,
    )
    count = 0

    def ask() -> tuple[Any, dict[str, Any]]:
        nonlocal count
        suggestion = scheduler.suggest()
        assert suggestion is not None and suggestion.config is not None
        trial = SyneTrial(count, suggestion.config, datetime.datetime.now())
        count += 1
        scheduler.on_trial_add(trial)
        return trial, suggestion.config

    def tell(trial: Any, steps: int, value: float) -> bool:
        result = {"loss": value, "steps": steps}
        if steps == LENGTH:
            scheduler.on_trial_complete(trial, result)
            return False
        if scheduler.on_trial_result(trial, result) == SchedulerDecision.STOP:
            scheduler.on_trial_remove(trial)
            return False
        return True

    return theirs(problem, seed, Rival(ask, tell))


def ours_by(**searcher: Any) -> Callable[[Problem, int], list[Done]]:
    return lambda problem, seed: ours(problem, seed, **searcher)


METHODS: dict[str, Callable[[Problem, int], list[Done]]] = {
    "dethpc random": ours_by(name="random"),
    "dethpc adaptive_asha, aggressive": ours_by(name="adaptive_asha", mode="aggressive"),
    "dethpc adaptive_asha, standard": ours_by(name="adaptive_asha", mode="standard"),
    "dethpc adaptive_asha, conservative": ours_by(name="adaptive_asha", mode="conservative"),
    "Optuna SuccessiveHalving": optuna_search("SuccessiveHalving"),
    "Optuna Hyperband": optuna_search("Hyperband"),
    "Syne Tune ASHA": syne_tune_search,
}
PACKAGES = {"Optuna": "optuna", "Syne": "syne-tune"}
OURS, RANDOM = "dethpc adaptive_asha, aggressive", "dethpc random"
COUNTERPARTS = {
    "Optuna SuccessiveHalving": OURS,
    "Syne Tune ASHA": OURS,
    "Optuna Hyperband": "dethpc adaptive_asha, standard",
}


def missing() -> dict[str, str]:
    """Methods that cannot run here, each with the package that it needs."""
    lacks: dict[str, str] = {}
    for method in METHODS:
        package = PACKAGES.get(method.split()[0])
        if package is not None:
            try:
                importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                lacks[method] = package
    return lacks


def trajectory(problem_name: str, method: str, seed: int) -> list[Done]:
    problem = next(p for p in PROBLEMS if p.name == problem_name)()
    return METHODS[method](problem, seed)


# --- population-based training ------------------------------------------------------------------------------------------


class Toy:
    """The toy problem of Jaderberg et al., "Population Based Training of Neural Networks", 2017, section 4.1 and figure 2.

    Maximise ``1.2 - x0**2 - x1**2``, starting at 0.9, 0.9, by steps along the gradient of ``1.2 - h0 * x0**2 - h1 * x1**2``. With
    h = (1, 0) or (0, 1), as there, a trial by itself never gets past 0.4; a population that copies and changes h gets to 1.2.
    """

    optimum, alone, rate = 1.2, 0.39, 0.02

    def begin(self, hparams: Hparams, seed: int) -> tuple[float, float]:
        return 0.9, 0.9

    def train(self, weights: tuple[float, float], hparams: Hparams, start: int, end: int) -> tuple[float, float]:
        h = (1.0, 0.0) if hparams["h"] == "first" else (0.0, 1.0)
        return tuple(x * (1 - 2 * self.rate * hi) ** (end - start) for x, hi in zip(weights, h, strict=True))  # type: ignore[return-value]

    def validate(self, weights: tuple[float, float], hparams: Hparams, index: int, steps: int) -> float:
        return 1.2 - weights[0] ** 2 - weights[1] ** 2


def toy(seed: int, *, population: bool) -> float:
    """The best value that 4 members reach in 200 steps each, exchanging every 10 steps or not at all."""
    common = {"metric": "q", "smaller_is_better": False}
    if population:
        searcher: dict[str, Any] = {
            **common,
            "name": "pbt",
            "population_size": 4,
            "num_rounds": 20,
            "length_per_round": {"batches": 10},
            "replace_function": {"truncate_fraction": 0.25},
            "explore_function": {"resample_probability": 0.5, "perturb_factor": 0.2},
        }
    else:
        searcher = {**common, "name": "random", "max_trials": 4, "max_concurrent_trials": 4}
    config = {
        "entrypoint": "train",
        "searcher": searcher,
        "hyperparameters": {"h": {"type": "categorical", "vals": ["first", "second"]}},
        "resources": {"slots_per_trial": 1},
    }
    simulation = Simulation(Site(1, 4), Pace(startup=0, length=200), Toy(), seed=seed)
    number = simulation.create(ExperimentConfig.from_json(config))
    simulation.run()
    best = simulation.result(number).best
    return best[-1].value


# --- statistics ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A median with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{show(self.value)} ({show(self.low)} to {show(self.high)})"


def show(value: float) -> str:
    return "> budget" if math.isinf(value) else f"{value:.3g}"


def bootstrap(statistic: Callable[[random.Random], float], rounds: int = 2000) -> tuple[float, float]:
    rng = random.Random(1)
    found = sorted(statistic(rng) for _ in range(rounds))
    return found[int(0.025 * rounds)], found[int(0.975 * rounds)]


def median_of(values: Sequence[float]) -> Estimate:
    low, high = bootstrap(lambda rng: statistics.median_low(rng.choices(values, k=len(values))))
    return Estimate(statistics.median_low(values), low, high)


def difference(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Of the means: finite values only."""

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    def drawn(rng: random.Random) -> float:
        return mean(rng.choices(first, k=len(first))) - mean(rng.choices(second, k=len(second)))

    return Estimate(mean(first) - mean(second), *bootstrap(drawn))


def time_to(done: Sequence[Done], target: float) -> float:
    return next((d.at for d in done if d.loss <= target), math.inf)


def regret_at(done: Sequence[Done], optimum: float, until: float = BUDGET) -> float:
    """How far the best fully trained trial is from the optimum; before the first one, infinity."""
    return min((d.loss - optimum for d in done if d.at <= until), default=math.inf)


# --- the report ---------------------------------------------------------------------------------------------------------


def report(problems: Sequence[Problem], found: Found, methods: Sequence[str], seeds: int) -> list[str]:
    targets = {problem.name: target_of(problem) for problem in problems}
    lines = [
        f"{seeds} seeds; {WORKERS} workers; a budget of {BUDGET // LENGTH} times a full training on each. Trials train for "
        f"{LENGTH} steps and are compared after {', '.join(map(str, LEVELS))}; speeds differ (log-normal, {SPREAD}). Only fully "
        f"trained trials count, by their loss without noise. The target is what the best {RARE:.0%} of random trials reach. "
        "Medians with 95 % bootstrap intervals; times in full trainings.",
        "",
        "| problem | method | time to target | reached it | regret at the end |",
        "|---|---|---|---|---|",
    ]
    for problem in problems:
        target = targets[problem.name]
        for method in methods:
            runs = found[problem.name, method]
            times = [time_to(run, target) / LENGTH for run in runs]
            regrets = [regret_at(run, problem.optimum) for run in runs]
            reached = sum(math.isfinite(t) for t in times) / len(times)
            lines.append(f"| {problem.name} | {method} | {median_of(times)} | {reached:.0%} | {median_of(regrets)} |")
    lines += [
        "",
        "Ours against each counterpart (capped mean time to target and mean regret, ours minus theirs; below 0 ours is better):",
        "",
    ]
    lines += ["| problem | ours | theirs | time | regret | verdict |", "|---|---|---|---|---|---|"]
    for problem in problems:
        target = targets[problem.name]
        for other in methods:
            mine = COUNTERPARTS.get(other)
            if mine is None and other != RANDOM:
                continue
            mine = mine or OURS
            pair = [found[problem.name, name] for name in (mine, other)]
            time = difference(*([min(time_to(r, target), BUDGET) / LENGTH for r in runs] for runs in pair))
            worst = max(r for runs in pair for run in runs if math.isfinite(r := regret_at(run, problem.optimum)))
            regret = difference(*([min(regret_at(r, problem.optimum), worst) for r in runs] for runs in pair))
            lines.append(
                f"| {problem.name} | {mine.removeprefix('dethpc ')} | {other} | {time} | {regret} | {verdict(time, regret)} |"
            )
    return lines


def verdict(time: Estimate, regret: Estimate) -> str:
    words = []
    for name, estimate in (("time", time), ("regret", regret)):
        if estimate.low > 0:
            words.append(f"{name} worse")
        elif estimate.high < 0:
            words.append(f"{name} better")
    return ", ".join(words) or "as good"


def report_toy(seeds: int) -> list[str]:
    with_pbt = [toy(seed, population=True) for seed in range(seeds)]
    alone = [toy(seed, population=False) for seed in range(seeds)]
    near = sum(value > 1.1 for value in with_pbt) / seeds
    return [
        f"Population-based training on the toy problem of its paper (figure 2), 4 members, 200 steps each, {seeds} seeds; the best "
        f"possible value is {Toy.optimum}:",
        "",
        "| method | best value |",
        "|---|---|",
        f"| pbt | {median_of(with_pbt)}; above 1.1 in {near:.0%} |",
        f"| the same members by themselves | {median_of(alone)} |",
    ]


def plot(problems: Sequence[Problem], found: Found, methods: Sequence[str], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "dethpc"
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    figure, [axes] = pyplot.subplots(1, len(problems), figsize=(4 * len(problems), 3.6), squeeze=False)
    moments = [BUDGET * i / 80 for i in range(1, 81)]
    for axis, problem in zip(axes, problems, strict=True):
        for number, method in enumerate(methods):
            runs = found[problem.name, method]
            low: list[float] = []
            medians: list[float] = []
            high: list[float] = []
            for moment in moments:
                regrets = sorted(regret_at(run, problem.optimum, moment) for run in runs)
                pick = [regrets[int(q * (len(regrets) - 1))] for q in (0.25, 0.5, 0.75)]
                for series, value in zip((low, medians, high), pick, strict=True):
                    series.append(value if math.isfinite(value) else math.nan)
            times = [moment / LENGTH for moment in moments]
            style = "-" if method.startswith("dethpc") else "--"
            axis.plot(times, medians, style, color=f"C{number}", label=method, linewidth=1.4)
            if method in (OURS, RANDOM):
                axis.fill_between(times, low, high, color=f"C{number}", alpha=0.12, linewidth=0)
        axis.set(title=problem.name, xlabel="time (full trainings)", yscale="log")
    axes[0].set_ylabel("regret of the best fully trained trial")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncol=4, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.13, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    path.write_text(re.sub(r"\d\d+\.\d{3,}", lambda found: f"{float(found[0]):.1f}", path.read_text()))  # half the size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", default="", help="problems whose name contains this")
    parser.add_argument("--write", action="store_true", help="the section and the plot of docs/benchmarks.md")
    options = parser.parse_args()
    problems = [kind() for kind in PROBLEMS if options.only in kind.name]
    lacks = missing()
    for method, package in lacks.items():
        print(f"left out: {method} ({package} is not installed)", file=sys.stderr)
    methods = [method for method in METHODS if method not in lacks]
    found: Found = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for problem in problems:
            for method in methods:
                many = range(options.seeds)
                runs = pool.map(trajectory, [problem.name] * len(many), [method] * len(many), many)
                found[problem.name, method] = list(runs)
                print(f"{problem.name}: {method}", file=sys.stderr)
    versions = [f"{p} {importlib.metadata.version(p)}" for p in PACKAGES.values() if p not in lacks.values()]
    lines = report(problems, found, methods, options.seeds) + ["", *report_toy(options.seeds)]
    if versions:
        lines += ["", f"With {', '.join(versions)}; random draws in all of them."]
    print("\n".join(lines))
    if options.write:
        docs = ROOT / "docs"
        try:
            plot(problems, found, methods, docs / "search-quality.svg")
            lines += ["", "![Regret over time](search-quality.svg)"]
        except ImportError:
            print("left out: the plot (matplotlib is not installed)", file=sys.stderr)
        head = ["## Search quality", "", "Written by `python -m benchmarks.search_quality --write`.", ""]
        SECTION.write_text("\n".join([*head, *lines]).rstrip() + "\n")


if __name__ == "__main__":
    main()
