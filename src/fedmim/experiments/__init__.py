"""Experiments: configurations, run folders and comparisons. It calls the simulation and never reaches into it."""
