"""Imports Flower once and ignores the deprecation warnings of its imports, because tests turn warnings into errors."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import flwr.clientapp
    import flwr.serverapp  # noqa: F401
