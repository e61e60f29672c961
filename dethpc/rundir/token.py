"""The owner's token for their master: a file in the home, made by the master."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Optional, Union

from dethpc.errors import RunDirError

_TOKEN = re.compile(r"[!-~]+")


def read(path: Union[str, os.PathLike[str]]) -> Optional[str]:
    """None when there is no file, or an empty one, which the master fills. Raises RunDirError, which names the way out; OSError."""
    try:
        content = Path(path).read_bytes().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise damaged(path) from None
    text = content.decode("ascii", "replace")
    if text and not _TOKEN.fullmatch(text):
        raise damaged(path)
    return text or None


def damaged(path: Union[str, os.PathLike[str]]) -> RunDirError:
    return RunDirError(
        f"{os.fspath(path)} is damaged: it holds no token. Remove it (rm -r {os.fspath(path)}) and stop the master if one runs "
        "(det master down): the next det command makes another token. Nothing else is lost; what uses a copy of the old one needs "
        "the new one"
    )
