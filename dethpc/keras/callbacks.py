"""The callbacks of TFKerasTrial, by name: with DeterminedCallback, Keras's own do."""

from __future__ import annotations

from dethpc.keras._legacy import Legacy

_INSTEAD = "use keras.callbacks.{} beside determined.keras.DeterminedCallback, and name it in its stateful_callbacks"


class Callback(Legacy):
    _name, _instead = "callbacks.Callback", "derive from keras.callbacks.Callback"


class EarlyStopping(Legacy):
    _name, _instead = "callbacks.EarlyStopping", _INSTEAD.format("EarlyStopping")


class ReduceLROnPlateau(Legacy):
    _name, _instead = "callbacks.ReduceLROnPlateau", _INSTEAD.format("ReduceLROnPlateau")


class TensorBoard(Legacy):
    _name, _instead = "callbacks.TensorBoard", "use determined.keras.TensorBoard"
