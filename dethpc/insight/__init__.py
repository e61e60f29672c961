"""What can be said about decisions and what came of them. Nothing here decides, and all of it is pure.

``waiting``: what can never start, and what waits in our own queue. ``reasons``: what waits in Slurm's, and why. ``goodput``: where
slots went.
"""
