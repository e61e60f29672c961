"""Slurm: by its commands (``commands``), read through pyslurm where it is installed (``pyslurm``), and its scripts (``script``)."""
