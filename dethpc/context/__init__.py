"""Context directories of experiments: ``collect`` finds the files, ``ignore`` reads ``.detignore``.

The CLI and the SDK pack with it, in jobs too: a search that runs as a task creates experiments. Reading ``.detignore`` needs
pathspec, which an image without dethpc lacks.
"""

from __future__ import annotations

LIMIT = 95 << 20
"""Bytes that all files of one context directory may have together; the client and the master both refuse more."""
