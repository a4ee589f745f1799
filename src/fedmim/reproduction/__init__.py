"""The paper's tables and figures: what each runs, at which scale, and how it is shown beside the paper's numbers."""
