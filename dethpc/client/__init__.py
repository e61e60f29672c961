"""Talking to the master: where it is (``address``) and how (``session``). Standard library only."""

from __future__ import annotations

from dethpc.client.address import MasterFinder, home, master_url, token
from dethpc.client.session import Session

__all__ = ["MasterFinder", "Session", "home", "master_url", "token"]
