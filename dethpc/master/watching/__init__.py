"""Live runs: what their directories and the scheduler say, back to the rows."""
