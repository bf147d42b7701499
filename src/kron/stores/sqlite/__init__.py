"""The SQLite store, in a file or in memory."""
