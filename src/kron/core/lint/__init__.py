"""Lint: findings about cron expressions and job definitions."""
