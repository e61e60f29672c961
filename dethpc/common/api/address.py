"""The master's address."""

from __future__ import annotations

import os

from dethpc.client.address import canonical, master_url

canonicalize_master_url = canonical


def get_default_master_url() -> str:
    """What ``DET_MASTER`` or ``DET_MASTER_ADDR`` says, else your own master's, else ``localhost:8080``."""
    return os.environ.get("DET_MASTER") or os.environ.get("DET_MASTER_ADDR") or master_url() or "localhost:8080"
