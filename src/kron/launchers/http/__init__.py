"""The http launcher: runs are POSTed to a URL."""
