"""Results: records loaded once, one summary of each run, statistics over seeds, groups of comparable runs."""
