"""krond, the host daemon: job files, supervised processes, and a private control socket."""
