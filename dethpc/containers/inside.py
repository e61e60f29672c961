"""What starts inside a container: the harness, in any image that has Python 3.9 or newer."""

from __future__ import annotations

# An image's own PYTHONPATH stays behind the harness, whichever runtime sets it and when. Any Python reads this, to say so when it
# is too old.
_START = (
    "import os, runpy, sys\n"
    "if sys.version_info < (3, 9):\n"
    "    sys.exit('dethpc: python3 in the image is %d.%d; runs need Python 3.9 or newer' % sys.version_info[:2])\n"
    "harness = sys.argv.pop(1)\n"
    "others = [path for path in os.environ.get('PYTHONPATH', '').split(':') if path and path != harness]\n"
    "os.environ['PYTHONPATH'] = ':'.join([harness] + others)\n"
    "sys.path[:1] = [harness]\n"
    "runpy.run_module('dethpc.exec', run_name='__main__', alter_sys=True)\n"
)


def command(harness: str, run_dir: str) -> tuple[str, ...]:
    """What ``python3 -m dethpc.exec RUN_DIR`` is outside, for the harness bound at the same path."""
    return ("python3", "-c", _START, harness, run_dir)
