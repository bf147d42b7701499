"""Everything that decides: values and pure functions, no clock, no network, no log."""
