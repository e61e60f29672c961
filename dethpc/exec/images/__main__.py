"""``python3 -m dethpc.exec.images FILE``: pulls an image into the cache, or removes images that were put aside.

``FILE`` is an ``Order``, which the master writes into the run's directory (0600). It may hold a password: that goes when this ends.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from pathlib import Path

from dethpc.errors import DethpcError
from dethpc.exec.images.cache import away
from dethpc.exec.images.pull import Order, pull
from dethpc.rundir.files import read_json, sealed, write_json


def main(file: str) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    content = read_json(file)
    if content is None:
        sys.stderr.write(f"image: {file} is missing\n")
        return 1
    order = Order(**{field.name: content[field.name] for field in dataclasses.fields(Order) if field.name in content})
    try:
        if order.remove:
            return _remove(order)
        pull(order)
    except (OSError, DethpcError) as error:
        sys.stderr.write(f"image: {order.name}: {error}\n")
        return 1
    finally:
        if order.auth:
            write_json(file, sealed(dataclasses.replace(order, auth={}).to_json()), durable=False)
    return 0


def _remove(order: Order) -> int:
    for path in order.remove:
        away(Path(path))
        print(f"image: {os.path.basename(path)} is removed", flush=True)
    remaining = [path for path in order.remove if os.path.lexists(path)]
    for path in remaining:
        sys.stderr.write(f"image: {path} cannot be removed\n")
    return 1 if remaining else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
