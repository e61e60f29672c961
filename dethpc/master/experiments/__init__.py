"""How experiments come into being and what is kept of them: created, unmanaged, standalone; their checkpoints."""
