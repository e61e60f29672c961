"""Archives of experiments and of checkpoints, written and read."""
