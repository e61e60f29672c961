"""Texts: what they mean, and how values are written for people and programs."""
