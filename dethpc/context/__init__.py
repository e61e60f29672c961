"""Context directories of experiments: ``collect`` finds the files, ``ignore`` reads ``.detignore``.

The CLI and the SDK pack with it. Reading ``.detignore`` needs pathspec, so it works where dethpc is installed and not in training
code on a compute node.
"""

from __future__ import annotations

LIMIT = 95 << 20
"""Bytes that all files of one context directory may have together; the client and the master both refuse more."""
