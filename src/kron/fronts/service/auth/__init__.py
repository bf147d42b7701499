"""Authentication, permissions, tenancy, rate limits and the audit log."""
