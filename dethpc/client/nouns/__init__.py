"""Calls of the REST API, one file per noun."""
