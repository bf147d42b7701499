"""Other schedulers seen through the theory: each module turns the events of one into a trace."""
