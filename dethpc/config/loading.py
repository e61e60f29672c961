"""From the text of an experiment configuration to a validated one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Optional

from pydantic import ValidationError

from dethpc.config.combine import fill, override
from dethpc.config.dialects import translate
from dethpc.config.dialects.lengths import BY_TIME
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.problems import problems_of
from dethpc.config.search_warnings import search_warnings
from dethpc.config.sections.checkpoint_storage import CheckpointStorage
from dethpc.config.sections.hyperparameters import Const, Log, Space, out_of_range, points, read_space, width
from dethpc.config.sections.section import Section
from dethpc.config.source import Place, Source, dump, read
from dethpc.config.unsupported import OLDER, ignored, refused, without_container
from dethpc.domain.entrypoint import trains_a_trial_class, unknown_references
from dethpc.domain.nested import leaves
from dethpc.errors import ConfigError, Problem

LARGEST_GRID = 100_000
"""The most points a grid may have. A larger one would keep the master from everything else."""


MOST_VALUES = 5_000_000
"""The most hyperparameters that all trials of a search may have together."""


MOST_PROBLEMS = 100
"""How many mistakes are told at once."""


@dataclass(frozen=True)
class Loaded:
    """A valid configuration.

    ``original`` is the user's text as it was; ``warnings`` are lines for the user; ``translated`` has one line for each field of
    an older generation: where it stands, what it says, and what that is today. ``without_container`` are warnings that hold where
    trials start without a container, which the site decides. ``source`` knows where each value was written.
    """

    config: ExperimentConfig
    original: str
    source: Source
    warnings: list[str] = field(default_factory=list)
    translated: list[str] = field(default_factory=list)
    without_container: list[str] = field(default_factory=list)

    def effective(self) -> dict[str, Any]:
        """The configuration with all defaults filled in, as JSON has it and in the shape that Determined stores.

        ``reproducibility.experiment_seed`` is null and ``name`` is empty where the user gave none: the master chooses.
        """
        return self.config.to_json()


def load(
    text: str,
    *,
    file: str = "config",
    overrides: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
) -> Loaded:
    """Read and check an experiment configuration.

    ``overrides`` are ``key.sub=value`` options, laid over the text; ``defaults`` (the master's) are laid under it; None: nobody
    knows them here. ``file`` is the name that errors give the text. Raises ConfigError with all problems at once.
    """
    source, problems = read(text, file)
    problems += override(source, overrides)
    translated, untranslatable = _translate(source)
    if defaults:
        fill(source, deepcopy(dict(defaults)), "the master's defaults")

    unplaced: list[Problem] = []
    grid = source.get(("searcher", "name")) == "grid"
    space: Space = {}
    if source.data.get("hyperparameters") is not None:
        space, unplaced = read_space(source.data["hyperparameters"], ("hyperparameters",), grid=grid)
        unplaced += out_of_range(space, ("hyperparameters",))
        if grid and points(space) > LARGEST_GRID:
            size = f"the grid has {points(space):,} points, each a trial; at most {LARGEST_GRID:,} are possible"
            unplaced.append(Problem(("hyperparameters",), size))
    config = None
    if not any(problem.field == "YAML" for problem in problems):
        try:
            config = ExperimentConfig.model_validate(
                source.data if defaults is not None else _without_sites(source.data)
            )
        except ValidationError as error:
            mistakes = problems_of(error, ExperimentConfig, source, elsewhere=OLDER)
            paths = {m.path for m in untranslatable}
            unplaced += [m for m in mistakes if m.path[:1] != ("hyperparameters",) and m.path not in paths]
    if config is not None and (trials := _trials(space, config)) * width(space) > MOST_VALUES:
        many = f"{width(space):,} hyperparameters in {trials:,} trials are more than {MOST_VALUES:,} values in all"
        unplaced.append(Problem(("hyperparameters",), many))
    unplaced += untranslatable
    wrong = {problem.path for problem in unplaced}
    unplaced += [m for m in refused(source) if not any(path[: len(m.path)] == m.path for path in wrong)]
    problems += [source.placed(problem) for problem in unplaced]
    if problems or config is None:
        ordered = sorted(problems, key=lambda problem: (problem.file or "", problem.line or 0))
        if len(ordered) > MOST_PROBLEMS:
            more = f"there are {len(ordered) - MOST_PROBLEMS:,} more mistakes; mend those above first"
            ordered[MOST_PROBLEMS:] = [Problem("config", more).at(file)]
        raise ConfigError(ordered)
    plain = list(without_container(source))
    messages = [*ignored(source), *warnings(space, config)]
    if translated and trains_a_trial_class(config.entrypoint) and "global_batch_size" not in config.hyperparameters:
        messages.append(
            "hyperparameters.global_batch_size is missing, which older trial classes need: without it, "
            "context.get_per_slot_batch_size() and get_global_batch_size() raise ValueError"
        )
    return Loaded(config, text, source, messages, translated, plain)


def _trials(space: Space, config: ExperimentConfig) -> int:
    return points(space) if config.searcher.name == "grid" else getattr(config.searcher, "max_trials", 1)


def _without_sites(data: dict[str, Any]) -> dict[str, Any]:
    """Without a section that only makes sense with the master's defaults below it."""
    storage = data.get("checkpoint_storage")
    if isinstance(storage, dict) and storage.get("type") is None:
        return {name: value for name, value in data.items() if name != "checkpoint_storage"}
    return data


class _StorageAlone(Section):
    checkpoint_storage: Optional[CheckpointStorage] = None


def load_storage(text: str, *, file: str = "config") -> dict[str, Any] | None:
    """The ``checkpoint_storage`` of an experiment's configuration, whatever else that has or lacks; None: it has none. Raises
    ConfigError."""
    source, problems = read(text, file)
    if problems:
        raise ConfigError(problems)
    name, section = "checkpoint_storage", None
    try:
        section = _StorageAlone.model_validate({name: source.data.get(name)}).checkpoint_storage
    except ValidationError as error:
        problems += problems_of(error, _StorageAlone, source)
    problems += [problem for problem in refused(source) if problem.path[0] == name]
    if problems:
        raise ConfigError([source.placed(problem) for problem in problems])
    return None if section is None else section.model_dump(mode="json")


def with_overrides(text: str, overrides: Sequence[str], *, file: str = "config") -> str:
    """The text with ``key.sub=value`` options worked in, as new YAML. Raises ConfigError when text or options cannot be read."""
    source, problems = read(text, file)
    problems += override(source, overrides)
    if problems:
        raise ConfigError(problems)
    return dump(source.data)


def merged(text: str, under: Mapping[str, Any], *, file: str = "config") -> str:
    """The text laid over the configuration ``under``, as new YAML in the present form. Raises ConfigError when it cannot be
    read."""
    return dump(merged_source(text, under, file=file, under_name="the configuration that it is laid over").data)


def merged_source(text: str, under: Mapping[str, Any], *, file: str, under_name: str) -> Source:
    """See ``merged``. ``under_name``: where its values are said to be written."""
    source, problems = read(text, file)
    if problems:
        raise ConfigError(problems)
    _translate(source)
    fill(source, translate(deepcopy(dict(under))).data, under_name)
    return source


def _translate(source: Source) -> tuple[list[str], list[Problem]]:
    """Bring ``source`` into the present form. Returns a line for each change, and the problems in fields of older forms."""
    translation = translate(source.data)
    lines = []
    for edit in translation.edits:
        file, line = source.place(edit.path)
        lines.append(f"{file}:{line}: {edit}" if line else f"{file}: {edit}")
        for path in edit.paths():
            # What is said about the new field points to where the old one was written.
            source.places[path] = Place(file, line)
    source.data = translation.data
    return lines, translation.problems


def warnings(space: Space, config: ExperimentConfig) -> list[str]:
    """What is valid and yet perhaps not meant."""
    messages = []
    if config.searcher.name == "single" and (varying := _varying(space)):
        messages.append(f"the single searcher draws one value at random of {', '.join(varying)}")
    if isinstance(getattr(config.searcher, "max_length", None), int) and config.searcher.name in BY_TIME:
        messages.append(
            "searcher.max_length has no unit: trials are compared only when they complete an operation of "
            "core_context.searcher.operations(); to compare them by their reports, set time_metric and max_time"
        )
    messages += search_warnings(config.searcher)
    messages += _values_for_exponents(space)
    messages += _endless(config)
    for name in unknown_references(config.entrypoint, space):
        names = ", ".join(name for name, _ in leaves(space))
        messages.append(f"entrypoint: {{{name}}} stays as it is: no hyperparameter has this name, only {names}")
    if trains_a_trial_class(config.entrypoint) and "horovod" not in str(config.entrypoint):
        fusion = {"tensor_fusion_cycle_time": 1, "auto_tune_tensor_fusion": False}
        if fused := [name for name, usual in fusion.items() if getattr(config.optimizations, name) != usual]:
            names = ", ".join(f"optimizations.{name}" for name in fused)
            messages.append(f"{names}: no effect unless Horovod exchanges the gradients (determined.launch.horovod)")
    for i, policy in enumerate(config.log_policies):
        if policy.action is not None and policy.pattern is None:
            messages.append(
                f"log_policies.{i}: {policy.name!r} has an action and no pattern, so it takes the usual policy of that name away "
                f"and {policy.action} never happens; give it a pattern"
            )
    for name, value in space.items():
        if isinstance(value, Const) and isinstance(value.val, list):
            if any(isinstance(item, dict) and "type" in item for item in value.val):
                messages.append(f"hyperparameters.{name} is a list, so it is a constant: nothing inside it is searched")
    return messages


def _endless(config: ExperimentConfig) -> Iterator[str]:
    """A script knows when it is done; a trial class is told."""
    searcher = config.searcher
    whole = searcher.name in ("single", "random", "grid")
    if whole and trains_a_trial_class(config.entrypoint) and getattr(searcher, "max_length", None) is None:
        yield (
            "searcher.max_length is missing: a trial class is told by it how long to train, and fails without; write for example "
            "max_length: {batches: 1000}"
        )


def _values_for_exponents(space: Space, above: str = "hyperparameters") -> Iterator[str]:
    """Ranges of ``log`` whose ends look like the values themselves: as exponents they span less than one power of the base."""
    for name, value in space.items():
        if isinstance(value, dict):
            yield from _values_for_exponents(value, f"{above}.{name}")
        elif isinstance(value, Log) and 0 < value.minval < 1 and value.maxval / value.minval >= value.base > 1:
            if value.maxval - value.minval < 1:
                low, high, base = value.minval, value.maxval, value.base
                yield (
                    f"{above}.{name}: minval and maxval are exponents, so it draws {base**low:.4g} to {base**high:.4g}; for "
                    f"{low:g} to {high:g} write minval: {math.log(low, base):.4g}, maxval: {math.log(high, base):.4g}"
                )


def _varying(space: Space, prefix: str = "hyperparameters") -> list[str]:
    names = []
    for name, value in space.items():
        if isinstance(value, dict):
            names += _varying(value, f"{prefix}.{name}")
        elif not isinstance(value, Const):
            names.append(f"{prefix}.{name}")
    return names
