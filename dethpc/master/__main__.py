"""``python -m dethpc.master --home DIR``: the master in the foreground, its log in ``DIR/log/master.log``."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from dethpc.errors import DethpcError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m dethpc.master", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--host", help="address to listen on; default: loopback, or every address on a Slurm cluster")
    parser.add_argument("--port", type=int, default=0, help="default: any free port")
    parser.add_argument("--site", type=Path, help="site configuration; default: the first one found")
    parser.add_argument("--rebuild", action="store_true", help="recreate the database from shared_fs, then exit")
    options = parser.parse_args()
    from dethpc.master.rebuild import rebuild
    from dethpc.master.serve import serve

    try:
        if options.rebuild:
            count = rebuild(options.home, options.site)
            print(f"{count} experiment{'' if count == 1 else 's'} recreated")
            return 0
        serve(options.home, options.host, options.port, options.site)
    except DethpcError as error:
        print(f"det: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a command of the scheduler that hangs keeps nobody waiting
