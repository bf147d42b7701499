"""Metrics, the decision log and log formats, for every process that runs a worker."""
