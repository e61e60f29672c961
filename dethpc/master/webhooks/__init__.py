"""Webhooks: what happens to experiments, sent to other programs and people."""
