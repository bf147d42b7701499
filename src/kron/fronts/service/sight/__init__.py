"""What operators see of the service: metrics, and logs that can be checked."""
