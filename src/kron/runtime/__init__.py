"""The runtime: the one loop under all fronts, which carries decisions out and makes none."""
