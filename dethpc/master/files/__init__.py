"""Files of trials: logs, archives of ended trials, and what is removed from shared_fs."""
