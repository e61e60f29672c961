"""Adapters of ``domain.ports.Scheduler``: Slurm, and this machine alone."""
