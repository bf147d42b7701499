"""Kubernetes: a client of its API server, and the launcher that creates Jobs."""
