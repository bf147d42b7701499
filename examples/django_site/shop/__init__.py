"""The shop: a Django app whose jobs Kron runs."""
