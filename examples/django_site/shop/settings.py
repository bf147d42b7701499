"""The settings of the site."""

import os
from pathlib import Path

FOLDER = Path(os.environ.get("SHOP_FOLDER", Path(__file__).parent.parent))

SECRET_KEY = "only for this example"
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "shop.db"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

# Where Kron keeps the state of its jobs, and when the report is due.
KRON_STATE = f"sqlite:///{FOLDER / 'kron.db'}"
REPORT_SCHEDULE = os.environ.get("SHOP_REPORT_SCHEDULE", "0 20 * * mon-sat")
