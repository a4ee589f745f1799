"""Simulation of a federation on one machine: the one round loop and what it drives."""
