"""Results: loaded records, one summary per run, statistics over seeds, and groups of comparable runs."""
