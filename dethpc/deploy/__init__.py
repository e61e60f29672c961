"""Private clusters for trials and tests."""
