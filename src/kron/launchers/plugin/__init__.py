"""Launchers provided by installed packages."""
