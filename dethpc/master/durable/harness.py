"""The harness bundle: one immutable zip of the code that runs on compute nodes.

Jobs put it at the head of PYTHONPATH. Compute nodes so never see another interpreter's site-packages, one file is kind to a
parallel file system, and an upgrade never changes a job that is already queued.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import marshal
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import dethpc
from dethpc.rundir.files import replacement

log = logging.getLogger(__name__)

# What runs on compute nodes: standard library only, Python >= 3.9 (the training APIs add the user's own framework).
ROOMS = (
    "dethpc/__init__.py",
    "dethpc/det.py",
    "dethpc/errors.py",
    "dethpc/extras.py",
    "dethpc/horovod.py",
    "dethpc/published.py",
    "dethpc/trials.py",
    "dethpc/util.py",
    "dethpc/domain/__init__.py",
    "dethpc/domain/context_files.py",
    "dethpc/domain/entrypoint.py",
    "dethpc/domain/environment.py",
    "dethpc/domain/ids.py",
    "dethpc/domain/reports.py",
    "dethpc/domain/secrets.py",
    "dethpc/domain/states.py",
    "dethpc/domain/trial_config.py",
    "dethpc/domain/workdir.py",
    "dethpc/domain/attempts",
    "dethpc/domain/slurm/__init__.py",
    "dethpc/domain/slurm/warning_signal.py",
    "dethpc/domain/text/__init__.py",
    "dethpc/domain/text/quotations.py",
    "dethpc/domain/text/hints.py",
    "dethpc/domain/text/measures.py",
    "dethpc/domain/text/names.py",
    "dethpc/domain/text/not_finite.py",
    "dethpc/domain/text/times.py",
    "dethpc/searcher/__init__.py",
    "dethpc/rundir",
    "dethpc/client",
    "dethpc/context",
    "dethpc/storage",
    "dethpc/data_layer",
    "dethpc/exec",
    "dethpc/core",
    "dethpc/launch",
    "dethpc/experimental",
    "dethpc/common",
    "dethpc/tensorboard",
    "dethpc/pytorch",
    "dethpc/keras",
    "dethpc/transformers",
    "dethpc/lightning",
    "determined",
)
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)


def contents(root: Path) -> dict[str, bytes]:
    """The bundle's files below ``root`` (the folder that holds ``dethpc/`` and ``determined/``): path -> bytes, sorted."""
    files: list[Path] = []
    for room in ROOMS:
        path = root / room
        files += path.rglob("*.py") if path.is_dir() else [path] if path.exists() else []
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(files)}


def _with_bytecode(files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for name, source in files.items():
        yield name, source
        yield f"{name}c", _bytecode(name, source)


def _bytecode(name: str, source: bytes) -> bytes:
    """The content of a ``.pyc`` that is valid whatever the times in the archive (PEP 552, unchecked hash)."""
    code = compile(source, name, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code)


def build(home: Path) -> Path:
    """Write ``home/harness/harness-<content hash>.zip`` unless it is there undamaged, and return its path. ``Raises: OSError``.

    Beside each module stands its bytecode, for the Python that the master runs on, which is as a rule the jobs' own: nothing
    could cache it inside a zip. Another Python finds that it is not its own and compiles the source.
    """
    files = contents(Path(dethpc.__file__).parent.parent)
    folder = home / "harness"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    bundle = folder / f"harness-{_digest(importlib.util.MAGIC_NUMBER, files)}.zip"
    if not bundle.exists():
        _write(bundle, files)
    elif why := damage(bundle):
        log.error("the harness bundle %s is damaged: %s; it is written again", bundle, why)
        _write(bundle, files)
    return bundle


def damage(bundle: Path) -> str:
    """What differs from the bundle that was written under this name; "" when nothing does. Raises: OSError.

    The name is the digest of the sources. The bytecode beside them is guarded by the archive's own checksums alone.
    """
    try:
        with zipfile.ZipFile(bundle) as archive:
            if (member := archive.testzip()) is not None:
                return f"checksum mismatch in {member}"
            names = archive.namelist()
            # A wrong size in the directory is no matter to zipfile, which ends with the stream, but to Python's import.
            if sum(30 + len(info.filename) + info.compress_size for info in archive.infolist()) != archive.start_dir:
                return "its directory does not fit its members"
            sources = {name: archive.read(name) for name in names if name.endswith(".py")}
            if {name for name in names if name not in sources} != {f"{name}c" for name in sources} or not sources:
                return "it does not hold the files that were written"
            magic = archive.read(f"{next(iter(sources))}c")[: len(importlib.util.MAGIC_NUMBER)]
    except (zipfile.BadZipFile, EOFError, ValueError, RuntimeError, NotImplementedError, zlib.error) as error:
        return f"it is not a whole zip file ({error})"
    return "" if bundle.name == f"harness-{_digest(magic, sources)}.zip" else "checksum mismatch"


def _digest(magic: bytes, files: dict[str, bytes]) -> str:
    """``magic``: that of the Python whose bytecode stands beside the sources."""
    digest = hashlib.sha256(magic)
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


def _write(bundle: Path, files: dict[str, bytes]) -> None:
    with replacement(bundle) as file:
        # Stored, not deflated: the bytes then depend on no zlib version, and importing costs no inflating.
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in _with_bytecode(files):
                entry = zipfile.ZipInfo(name, _TIMESTAMP)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, data)
        os.fchmod(file.fileno(), 0o644)  # a container may read it as another user; the folders above guard it
