"""The frameworks that training APIs build on: dethpc installs each by an extra, and says so where one is missing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator


@contextmanager
def needed(api: str, framework: str, extra: str) -> Iterator[None]:
    """Around the imports of a framework. Raises ImportError that says what ``api`` needs and which extra brings it. ::

    with needed("determined.pytorch", "PyTorch", "torch"):
        import torch
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{api} needs {framework}: pip install 'dethpc[{extra}]' ({error})") from error
