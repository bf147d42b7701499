"""Tasks: jobs as the embedded scheduler's specification sees them."""
