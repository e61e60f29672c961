"""From a run that the rows want to a job: what it asks for, its directory and script, and the call to the scheduler."""
