"""Imports Flower once, without the deprecation warnings of what it imports: in tests all warnings are errors."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import flwr.clientapp
    import flwr.serverapp  # noqa: F401
