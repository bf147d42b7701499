"""A guided tour of the command line: run it with `make run`."""
