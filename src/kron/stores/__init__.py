"""Stores: what Kron remembers, in SQLite (in a file or in memory) and in PostgreSQL."""
