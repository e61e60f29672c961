"""Slurm's notation of resources, memory, times and signals."""
