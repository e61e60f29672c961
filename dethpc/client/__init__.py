"""Client of the master: its address and token (``address``), requests (``session``). Standard library only."""

from __future__ import annotations

from dethpc.client.address import MasterFinder, master_url, token
from dethpc.client.session import Session
from dethpc.rundir.home import home

__all__ = ["MasterFinder", "Session", "home", "master_url", "token"]
