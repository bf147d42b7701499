"""Shared by commands: options, files, tables, the client."""
