"""Reports: summaries, tables and plots from run folders. Nothing here trains."""
