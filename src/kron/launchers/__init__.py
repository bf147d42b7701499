"""Launchers: how runs are started, and how their ends are reported."""
