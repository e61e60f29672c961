"""Mixed precision without a change to the training code."""

from __future__ import annotations

from typing import Any

import torch


def grad_scaler(device: torch.device) -> Any:
    """A scaler that does something on GPUs alone: elsewhere autocast uses bfloat16, whose range needs none."""
    enabled = device.type == "cuda"
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device.type, enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)


class _Autocast:
    """Goes before a model's own class: its forward pass runs under autocast and returns float32, so that the loss needs none."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        parameter = next(self.parameters(), None)  # type: ignore[attr-defined]
        device = "cpu" if parameter is None else parameter.device.type
        with torch.autocast(device):
            output = super().forward(*args, **kwargs)  # type: ignore[misc]
        return _float32(output)


def autocast(model: torch.nn.Module) -> torch.nn.Module:
    """``model`` itself, from now on under autocast. Its state and its methods stay what they were."""
    own = vars(model).get("forward")  # torch.compile() puts it there
    if own is not None:

        def forward(*args: Any, **kwargs: Any) -> Any:
            with torch.autocast(next((p.device.type for p in model.parameters()), "cpu")):
                output = own(*args, **kwargs)
            return _float32(output)

        model.forward = forward
    else:
        kind = type(model)
        model.__class__ = type(
            kind.__name__, (_Autocast, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__}
        )
    return model


def _float32(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output.float() if output.dtype in (torch.float16, torch.bfloat16) else output
    if isinstance(output, dict):
        items = {name: _float32(value) for name, value in output.items()}
        try:
            return type(output)(items)
        except TypeError:
            return items
    if isinstance(output, (list, tuple)):
        values = [_float32(value) for value in output]
        return type(output)(*values) if hasattr(output, "_fields") else type(output)(values)
    return output
