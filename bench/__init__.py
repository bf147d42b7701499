"""Benchmarks of Kron and its peers: `python -m bench [--only PART ...] [--quick] [--full] [--json FILE]`."""
