"""Metrics, the decision log and log formats."""
