"""Determined's ``common``: what published scripts import from it, made of dethpc's own client and SDK."""

from __future__ import annotations

from dethpc.common import api, storage, util

__all__ = ["api", "storage", "util"]
