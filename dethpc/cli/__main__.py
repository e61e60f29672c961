"""``python -m dethpc.cli``: the same as ``det``."""

from dethpc.cli import main

main(prog_name="det")
