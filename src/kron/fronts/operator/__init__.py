"""The Kubernetes operator: KronJobs in, Jobs out, with the API server as the store."""
