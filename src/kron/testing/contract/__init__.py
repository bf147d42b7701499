"""The parts of the contract every store keeps; `kron.testing.store_contract` has them together."""
