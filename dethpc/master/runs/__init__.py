"""From a run that the rows want to a job, and from what the job does back to the rows."""
