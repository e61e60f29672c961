"""Determined's REST API v1 as data: one module per noun, nothing but shapes and how a fact becomes one."""
