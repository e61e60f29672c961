"""Hyperparameters drawn by a sampler of Optuna, for any method that draws trial after trial.

Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", KDD 2019. With the ``tpe`` sampler (Bergstra
et al., NeurIPS 2011) and halving, trials that were stopped early count as pruned at the rung that they reached.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dethpc.config.sections.hyperparameters import Categorical, Const, Double, Int, Log, Space
from dethpc.config.sections.searcher import Sampler
from dethpc.errors import Refused


class OptunaDraws:
    """Any sampler of Optuna, by name (``tpe``) or with options (``{name: tpe, multivariate: true}``).

    The study lives in memory and is made when it is first needed, from what was recorded. Every draw uses a new sampler seeded
    by the experiment's seed and the trial's index, so that a draw depends on these and the earlier trials alone. Samplers that
    keep more than the trials (``cmaes``) start that part from scratch when the master starts again.
    """

    def __init__(self, sampler: Sampler, space: Space, seed: int) -> None:
        options = dict(sampler) if isinstance(sampler, dict) else {"name": sampler}
        self._name = str(options.pop("name"))
        self._options = options
        self._seed = seed
        self._space = space
        self._leaves = dict(_leaves(self._space, ()))
        self._hparams: list[Mapping[str, Any]] = []  # by trial index
        self._ended: dict[int, tuple[float | None, int, bool]] = {}
        self._study: Any = None
        self._told: list[int] = []  # indexes of trials that ended and that the study does not know of

    def try_out(self) -> None:
        """Draw as late in a search as a sampler begins to learn from it. Raises Refused, with the option or the missing package,
        where that fails: most samplers look at their options, and import what they need, only then."""
        kind = self._kind()
        _check_types(kind, self._options)
        self._sampler(0)
        try:
            self._rehearse(kind, self._options)
        except ImportError as error:
            package = error.name or str(error)
            raise Refused(
                f"searcher.sampler: {kind.__name__} needs the package {package}, which is not installed: pip install {package} "
                "where the master runs"
            ) from None
        except Exception as error:
            for option, value in self._options.items():
                try:
                    self._rehearse(kind, {option: value})
                except Exception as own:
                    raise Refused(
                        f"searcher.sampler.{option}: {kind.__name__} cannot work with {value!r}: {own}"
                    ) from None
            raise Refused(
                f"searcher.sampler: {kind.__name__} cannot draw from these hyperparameters: {error}"
            ) from None

    def _rehearse(self, kind: Any, options: Mapping[str, Any]) -> None:
        optuna, distributions = _optuna(), self._distributions()
        study = optuna.create_study(direction="minimize")
        for index in range(_REHEARSED):
            study.sampler = optuna.samplers.RandomSampler(seed=index)
            study.tell(study.ask(distributions), float(index % 5))
        sooner = {name: min(value, 2) for name, value in options.items() if name == _STARTUP and isinstance(value, int)}
        study.sampler = kind(seed=0, **{**options, **sooner})
        study.ask(distributions)

    def draw(self, index: int) -> dict[str, Any]:
        """Raises Refused when Optuna is not there, or has no such sampler or option, or the sampler fails."""
        try:
            return self._draw(index)
        except Refused:
            raise
        except Exception as error:  # whatever a sampler raises, the search cannot continue
            cause = f"{type(error).__name__}: {error}"
            raise Refused(f"searcher.sampler: {self._name} failed to draw trial {index + 1}: {cause}") from error

    def _draw(self, index: int) -> dict[str, Any]:
        study = self._current_study(index)
        if index < len(study.get_trials(deepcopy=False)):
            params = study.get_trials(deepcopy=False)[index].params  # drawn before, and not committed
        else:
            study.sampler = self._sampler(index)
            params = study.ask(self._distributions()).params
        return self._nest(params)

    def created(self, index: int, hparams: Mapping[str, Any]) -> None:
        self._hparams.append(hparams)

    def learned(self, index: int, value: float | None, step: int, full: bool) -> None:
        self._ended[index] = (value, step, full)
        self._told.append(index)

    def _current_study(self, index: int) -> Any:
        optuna = _optuna()
        if self._study is None:
            self._sampler(index)
            self._study = optuna.create_study(direction="minimize")
        count = len(self._study.get_trials(deepcopy=False))
        for earlier in range(count, min(index, len(self._hparams))):
            params, distributions = self._flat(self._hparams[earlier]), self._distributions()
            state = optuna.trial.TrialState.RUNNING
            trial = optuna.trial.create_trial(state=state, params=params, distributions=distributions)
            self._study.add_trial(trial)
        # Samplers of finite spaces stop the study when they have seen all of it, which only ``Study.optimize`` allows.
        self._study.sampler = optuna.samplers.RandomSampler(seed=0)
        for ended in sorted(self._told):
            self._tell(optuna, ended)
        self._told.clear()
        return self._study

    def _tell(self, optuna: Any, index: int) -> None:
        value, step, full = self._ended.pop(index)
        state = optuna.trial.TrialState
        if value is None or math.isinf(value):
            self._study.tell(index, state=state.FAIL)
        elif full or step == 0:
            self._study.tell(index, value)
        else:
            optuna.trial.Trial(self._study, self._study.get_trials(deepcopy=False)[index]._trial_id).report(value, step)
            self._study.tell(index, state=state.PRUNED)

    def _kind(self) -> Any:
        samplers = _optuna().samplers
        classes = {
            n[: -len("Sampler")].lower(): n for n in samplers.__all__ if n.endswith("Sampler") and n != "BaseSampler"
        }
        if self._name.lower() not in classes:
            raise Refused(
                f"searcher.sampler: Optuna has no sampler {self._name!r}; it has {', '.join(sorted(classes))}"
            )
        return getattr(samplers, classes[self._name.lower()])

    def _sampler(self, index: int) -> Any:
        kind = self._kind()
        digest = hashlib.sha256(f"{self._seed}:{index}".encode()).digest()
        try:
            return kind(seed=int.from_bytes(digest[:4], "big"), **self._options)
        except (TypeError, ValueError) as error:
            raise Refused(f"searcher.sampler: {kind.__name__} does not take these options: {error}") from None

    def _distributions(self) -> dict[str, Any]:
        kinds = _optuna().distributions
        distributions: dict[str, Any] = {}
        for path, hp in self._leaves.items():
            if isinstance(hp, Int):
                distributions[path] = kinds.IntDistribution(hp.minval, hp.maxval)
            elif isinstance(hp, Double):
                distributions[path] = kinds.FloatDistribution(hp.minval, hp.maxval)
            elif isinstance(hp, Log):
                low, high = sorted((hp.base**hp.minval, hp.base**hp.maxval))
                distributions[path] = kinds.FloatDistribution(low, high, log=True)
            elif isinstance(hp, Categorical):
                distributions[path] = kinds.CategoricalDistribution(
                    list(range(len(hp.vals)))
                )  # the values may be anything
        return distributions

    def _flat(self, hparams: Mapping[str, Any]) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for path, hp in self._leaves.items():
            value: Any = hparams
            for name in path.split(_SEPARATOR):
                value = value[name]
            if isinstance(hp, Categorical):
                flat[path] = _place(hp.vals, value)
            elif not isinstance(hp, Const):
                flat[path] = value
        return flat

    def _nest(self, params: Mapping[str, Any]) -> dict[str, Any]:
        nested: dict[str, Any] = {}
        for path, hp in self._leaves.items():
            *above, last = path.split(_SEPARATOR)
            level = nested
            for name in above:
                level = level.setdefault(name, {})
            if isinstance(hp, Const):
                level[last] = hp.val
            else:
                level[last] = hp.vals[params[path]] if isinstance(hp, Categorical) else params[path]
        return nested


def _place(vals: Sequence[Any], value: Any) -> int:
    """Which of ``vals`` it is. 1, 1.0 and true are three values, and NaN is one; raises ValueError for one that is not there."""
    exact = [json.dumps(val, sort_keys=True) for val in vals]
    text = json.dumps(value, sort_keys=True)
    return exact.index(text) if text in exact else list(vals).index(value)


_SEPARATOR = "\x1f"  # in no name that a person writes


def _leaves(space: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name in sorted(space):
        hp = space[name]
        if isinstance(hp, Mapping):
            yield from _leaves(hp, (*path, name))
        else:
            yield _SEPARATOR.join((*path, name)), hp


_REHEARSED = 12
"""Trials after which the samplers that first draw at random (10 times, unless told otherwise) do so no more."""

_STARTUP = "n_startup_trials"

_PLAIN: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "None": (type(None),),
}


def _check_types(kind: Any, options: Mapping[str, Any]) -> None:
    """Raises Refused for an option of another type than the sampler declares."""
    for name, parameter in inspect.signature(kind).parameters.items():
        declared = getattr(parameter.annotation, "__name__", None) or str(parameter.annotation)
        names = [part.strip() for part in declared.split("|")]
        if name not in options or not all(part in _PLAIN for part in names):
            continue
        value = options[name]
        types = tuple(cls for part in names for cls in _PLAIN[part])
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            expected = " or ".join(part for part in names if part != "None")
            raise Refused(
                f"searcher.sampler.{name}: {value!r} is a {type(value).__name__}; {kind.__name__} takes {expected}"
            )


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise Refused("searcher.sampler needs Optuna: pip install 'dethpc[optuna]' where the master runs") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
