"""Which build of dethpc is installed, for programs that talk to each other and should be of the same one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import dethpc

_PACKAGES = ("dethpc/", "determined/")


def build() -> str:
    """A digest of the files that an installer put where this process imports dethpc from, as it is now; "" for a source tree, which
    changes as it is edited. Builds of one version differ in it."""
    for record in Path(dethpc.__file__).parent.parent.glob("dethpc-*.dist-info/RECORD"):
        try:
            lines = record.read_text().splitlines()
        except OSError:  # it is being replaced
            return ""
        files = sorted(line for line in lines if line.startswith(_PACKAGES) and "/__pycache__/" not in line)
        return hashlib.sha256("\n".join(files).encode()).hexdigest()[:16] if files else ""
    return ""
