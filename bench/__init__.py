"""Kron measured beside its peers: `python -m bench [part ...] [--quick] [--json FILE]`."""
