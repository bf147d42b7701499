"""Instants, durations and time zones as integers."""
