"""The service: schedules for many users, in a database, registered by programs or over HTTP (SPEC 3)."""
