"""Management of the shop."""
