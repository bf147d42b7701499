"""The planning step: records and an instant in, changes out."""
