"""Detect from the records of a run whether it has diverged.

Uploads with NaN or infinity, or beyond `max_distance`, are rejected. If all uploads of a round are rejected, the model
does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

STALLED_ROUNDS = 3  # a run has diverged after this many rounds in a row without an accepted upload


def stalled_rounds(records: Sequence[Mapping[str, Any]]) -> int:
    """The number of rounds at the end of a run in which every upload was rejected."""
    count = 0
    for record in reversed(records):
        private = record.get("epsilon") is not None  # then no losses are recorded, and the model changes in any case
        if not record["refused"] or record["train_loss"] is not None or private:
            break
        count += 1
    return count


def diverged(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run has diverged: every upload of its last three rounds, or of all if it has fewer, was rejected.

    The results are then those of a model that no longer learns.
    """
    return bool(records) and stalled_rounds(records) >= min(STALLED_ROUNDS, len(records))


def divergence(records: Sequence[Mapping[str, Any]]) -> str:
    """Describe how a run has diverged, and what to do."""
    first, last = (records[-back]["round"] for back in (stalled_rounds(records), 1))
    when = f"of round {last}" if first == last else f"of rounds {first} to {last}"
    return (
        f"diverged: every upload {when} was rejected because it was not finite or too far away, so the model did not "
        "change; try a smaller lr or clip_norm, or a larger max_distance if it is set"
    )
