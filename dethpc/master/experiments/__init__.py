"""Creation of experiments (managed, unmanaged, standalone and imported), what is stored of them, and their checkpoints."""
