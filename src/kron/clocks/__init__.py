"""Clocks and the host's time zone."""
