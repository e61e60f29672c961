"""The run directory made by hand, for this room."""

from tests.exec.fixtures import run

__all__ = ["run"]
