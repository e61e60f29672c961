"""Launchers start the worker processes of one attempt. Run one as ``python3 -m dethpc.launch.NAME``."""
