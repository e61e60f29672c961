"""One trial of a sweep, on a compute node: calls the pickled function with the trial's hyperparameters and reports what it returns.

It goes along with the experiment, beside ``fn.pickle``, which is unpickled here alone: by the user's own job.
"""

import inspect
import json
import numbers
import pathlib
import sys

import dethpc
from dethpc import core
from dethpc.domain.text.not_finite import numbers_in
from dethpc.errors import InvalidHP


def main() -> None:
    here = pathlib.Path(__file__).parent
    sweep = json.loads((here / "sweep.json").read_text())
    sys.path += [folder for folder in sweep["path"] if folder not in sys.path]
    try:
        from submitit.core.utils import DelayedSubmission
    except ImportError as error:
        sys.exit(f"{sys.executable} cannot unpickle the function of the sweep ({error}): pip install submitit there")
    fn = DelayedSubmission.load(here / "fn.pickle").function
    info = dethpc.get_cluster_info()
    assert info is not None
    hparams = numbers_in(info.trial.hparams)  # the space spelled those that no configuration can hold
    if takes_context(fn):
        with core.init() as context:
            report(context, fn(hparams, context), sweep["metric"])
        return
    try:
        result = fn(hparams)
    except InvalidHP:
        with core.init():
            raise
    if result is not None:  # None: it has reported for itself
        with core.init() as context:
            report(context, result, sweep["metric"])


def takes_context(fn: object) -> bool:
    """Whether ``fn`` wants the core context as its second argument."""
    try:
        inspect.signature(fn).bind({}, None)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def report(context: core.Context, result: object, metric: str) -> None:
    """A number is the searcher's metric; a dict has it among others. Raises TypeError for anything else."""
    if result is None:
        return
    if not isinstance(result, dict):
        result = {metric: result}
    value = number_of(result.get(metric))
    if isinstance(value, bool) or not isinstance(value, numbers.Number):
        raise TypeError(f"the function must return a number, or a dict in which {metric!r} is one, not {result!r:.200}")
    context.train.report_validation_metrics(max(1, context.train._steps), result)


def number_of(value: object) -> object:
    """That of a scalar of numpy or torch; anything else as it is, an array of several among it."""
    try:
        return value.item()  # type: ignore[attr-defined]
    except (AttributeError, ValueError, RuntimeError):
        return value


if __name__ == "__main__":
    main()
