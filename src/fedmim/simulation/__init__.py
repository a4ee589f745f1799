"""Simulation of a federation on one machine: the round loop, the engines and the checkpoints."""
