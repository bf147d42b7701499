"""Create the table of reports."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first migration."""

    initial = True
    operations = (
        migrations.CreateModel(
            "Report",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("key", models.CharField(max_length=64, unique=True)),
                ("due_at", models.DateTimeField()),
            ],
        ),
    )
