"""Servers on the loopback that stand in for the real ones in tests."""
