"""Implementations of the ports: everything that speaks to the world. Wire shapes never leave this room."""
