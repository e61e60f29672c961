"""Saving of checkpoints: alone, together, and while their store is away."""
