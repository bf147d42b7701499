"""The embedded front: a scheduler inside a Python program."""
