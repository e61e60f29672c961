"""The queue in front of the scheduler's: its jobs, their order, which run is dispatched next, and what users change about it."""
