"""The WebUI: pages rendered on the server through ``client``, which update while they are open. DESIGN D25.

``app.py`` routes, authorizes and renders, ``pages/`` has one file per noun, ``show.py`` formats values. A page calls the master
through the same client functions as ``det``, as the user who is logged in; viewing a page never queries Slurm.
"""
