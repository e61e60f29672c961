"""Clusters for trying and testing."""
