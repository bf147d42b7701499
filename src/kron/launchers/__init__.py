"""Launchers: how executions begin, and how their ends become known."""
