"""The celery launcher: runs are published to a Celery queue."""
