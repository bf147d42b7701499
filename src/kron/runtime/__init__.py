"""The runtime: the engine, which is the one loop under every front, and its parts."""
