"""krond, the host daemon: job files, processes with a supervisor each, and a private control socket."""
