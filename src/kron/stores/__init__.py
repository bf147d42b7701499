"""Stores: jobs, runs and history in SQLite (a file or memory) and in PostgreSQL."""
