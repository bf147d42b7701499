"""The process launcher: runs are processes of this host."""
