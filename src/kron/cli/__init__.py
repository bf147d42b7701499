"""The `kron` command: one file per command, each of which asks the core and prints."""
