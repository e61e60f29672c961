"""The WebUI: pages over ``client``, made on the server, that go on to change while one looks. DESIGN D25.

``app.py`` is the door and the frame of every page, ``pages/`` has one file per noun, ``show.py`` is how values look. A page asks
the master through the same client functions as ``det``, as whoever is logged in, and looking never asks Slurm.
"""
