"""The names of TFKerasTrial, which Determined deprecated in 0.38. They can be imported; using one says what to use instead."""

from __future__ import annotations

from typing import Any, List, NoReturn, Optional


def _gone(name: str, instead: str) -> NoReturn:
    raise NotImplementedError(
        f"determined.keras.{name} belongs to TFKerasTrial, which Determined deprecated in 0.38 and dethpc does not have: "
        f"{instead}. docs/training.md shows how a TFKerasTrial becomes a script"
    )


_FIT = "build and compile the model in a script, and pass determined.keras.DeterminedCallback to model.fit()"


class Legacy:
    """Neither to be built nor to be derived from."""

    _name, _instead = "", _FIT

    def __init__(self, *_: Any, **__: Any) -> None:
        _gone(self._name, self._instead)

    def __init_subclass__(cls, **__: Any) -> None:
        if not cls.__module__.startswith("dethpc.keras"):
            _gone(cls._name, cls._instead)


class TFKerasTrial(Legacy):
    _name = "TFKerasTrial"


class TFKerasTrialContext(Legacy):
    _name = "TFKerasTrialContext"


class TFKerasTrialController(Legacy):
    _name = "TFKerasTrialController"


class TFKerasExperimentalContext(Legacy):
    _name, _instead = "TFKerasExperimentalContext", "for cached datasets, use determined.keras.DataLayer in a script"


class TFKerasTrainConfig(Legacy):
    _name = "TFKerasTrainConfig"


class TFKerasTensorBoard(Legacy):
    _name, _instead = "TFKerasTensorBoard", "use determined.keras.TensorBoard"


class SequenceAdapter(Legacy):
    _name, _instead = "SequenceAdapter", "pass the keras.utils.PyDataset itself to model.fit()"


InputData = Any  # what TFKerasTrial's loaders returned: for annotations


def load_model_from_checkpoint_path(path: str, tags: Optional[List[str]] = None) -> Any:
    """Raises NotImplementedError: a checkpoint of DeterminedCallback holds weights, for ``model.load_weights()``."""
    _gone(
        "load_model_from_checkpoint_path",
        "build the model, then model.load_weights(path + '/model_checkpoint.weights.h5')",
    )
