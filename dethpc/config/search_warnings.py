"""What a ``searcher`` section asks for that is possible and yet will not be what was meant: warnings that say what will happen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dethpc.config.sections.searcher import (
    PBT,
    Adaptive,
    AdaptiveASHA,
    AdaptiveSimple,
    AsyncHalving,
    Searcher,
    SyncHalving,
    count,
)

_LARGER_IS_BETTER = re.compile(
    r"acc|accuracy|auc|auroc|f1|iou|miou|dice|precision|recall|reward|score|bleu|rouge|psnr|ssim|ndcg|mrr|mcc|kappa|top\d+"
)
_SMALLER_IS_BETTER = re.compile(r"loss|err|error|neg|negative|perplexity")


def search_warnings(searcher: Searcher) -> Iterator[str]:
    """One line for each."""
    if "smaller_is_better" not in searcher.model_fields_set and _is_maximised(searcher.metric):
        yield (
            f"searcher.smaller_is_better is not set, so the trial with the smallest {searcher.metric} is the best; if larger is "
            "better, write smaller_is_better: false"
        )
    if isinstance(searcher, AdaptiveASHA):
        yield from _asha(searcher)
    elif isinstance(searcher, AsyncHalving):
        yield from _lengths("num_rungs", searcher.num_rungs, searcher.divisor, searcher.full_length())
    elif isinstance(searcher, AdaptiveSimple):
        brackets = len(searcher.rungs())
        yield from _empty_brackets(brackets, searcher.max_trials)
        yield from _lengths("max_rungs", searcher.max_rungs, searcher.divisor, count(searcher.max_length))
    elif isinstance(searcher, (Adaptive, SyncHalving)):
        yield from _budget(searcher)
    elif isinstance(searcher, PBT):
        if int(searcher.replace_function.truncate_fraction * searcher.population_size) == 0:
            yield (
                f"searcher.replace_function.truncate_fraction: {searcher.replace_function.truncate_fraction:g} of "
                f"{searcher.population_size} trials is less than one, so no trial is ever replaced"
            )
    if getattr(searcher, "stop_once", None) is False:
        yield "searcher.stop_once: a trial that was stopped is never resumed (also in Determined 0.38)"
    if getattr(searcher, "train_stragglers", True) is False:
        yield "searcher.train_stragglers: running trials always finish their rung"


def _is_maximised(metric: str) -> bool:
    """Whether most people would say so of a metric of this name: ``val_acc``, ``eval/F1``, ``MeanReward``."""
    parts = re.findall(r"[a-z]+\d*", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", metric).lower())
    good = any(_LARGER_IS_BETTER.fullmatch(word) for word in parts)
    return good and not any(_SMALLER_IS_BETTER.fullmatch(word) for word in parts)


def _asha(searcher: AdaptiveASHA) -> Iterator[str]:
    length, trials = searcher.full_length(), searcher.max_trials
    if searcher.bracket_rungs:
        yield from _empty_brackets(len(searcher.bracket_rungs), trials)
        yield from _lengths("bracket_rungs", max(searcher.bracket_rungs), searcher.divisor, length)
        return
    useful = searcher.useful_rungs()
    if "max_rungs" in searcher.model_fields_set and useful < searcher.max_rungs:
        yield (
            f"searcher.max_rungs: {trials} trials and a length of {length} are enough for {useful} of the "
            f"{searcher.max_rungs} rungs with divisor {searcher.divisor:g}"
        )
    if useful == 1:
        yield (
            f"searcher: {trials} trials and a length of {length} leave no rung but the last: no trial is stopped early, "
            f"as in a random search"
        )


def _empty_brackets(brackets: int, trials: int) -> Iterator[str]:
    if brackets > trials:
        yield f"searcher: there are {brackets} brackets and {trials} trials; the last {brackets - trials} brackets get none"


def _lengths(field: str, rungs: int, divisor: float, length: int) -> Iterator[str]:
    together = sum(int(length / divisor ** (rungs - 1 - i)) <= 1 for i in range(rungs))
    if together > 1:
        yield (
            f"searcher.{field}: a length of {length} divided by {divisor:g} again and again leaves the first {together} of "
            f"{rungs} rungs at length 1"
        )


def _budget(searcher: Adaptive | SyncHalving) -> Iterator[str]:
    if isinstance(searcher, SyncHalving):
        field = "num_rungs"
    else:
        field = "bracket_rungs" if searcher.bracket_rungs else "max_rungs"
    brackets = searcher.rungs()
    share, length = count(searcher.budget) // len(brackets), count(searcher.max_length)
    yield from _lengths(field, max(brackets), searcher.divisor, length)
    if share < length:
        yield (
            f"searcher.budget: {count(searcher.budget)} over {len(brackets)} brackets is {share} for each, less than one "
            f"trial of the full length ({length}) needs; every bracket still trains one to the end, so it will be exceeded"
        )
