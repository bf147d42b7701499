"""The service's pages: rendered on the server, readable without JavaScript."""
