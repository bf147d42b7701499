"""Cron: text in, a value that says which local times match out."""
