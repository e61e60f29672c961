"""One file per noun of the command line: its group of commands."""
