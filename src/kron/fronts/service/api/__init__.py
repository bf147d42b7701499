"""The HTTP API: application, middleware, error responses, and one module per resource."""
