"""The tables of the shop."""

from django.db import models


class Report(models.Model):
    """One report, for one period; the key makes it unique however often the job is attempted."""

    key = models.CharField(max_length=64, unique=True)
    due_at = models.DateTimeField()
