"""The user's processes: their output, their signals, and their end."""
