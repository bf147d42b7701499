"""Kron measured beside its peers: `python -m bench [--only PART ...] [--quick] [--full] [--json FILE]`."""
