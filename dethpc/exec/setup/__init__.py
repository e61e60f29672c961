"""What a node prepares for the user's code: its files, its Python, its environment."""
