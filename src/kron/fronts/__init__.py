"""Fronts: each translates words at its own edge and wires parts; none decides anything."""
