"""Programs that measure, and RESULTS.md, what they found."""
