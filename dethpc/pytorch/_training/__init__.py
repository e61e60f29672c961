"""The training loop that trials of all frameworks share."""
