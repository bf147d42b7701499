"""The supervisor of runs: a small program, with the standard library alone, that outlives krond."""
