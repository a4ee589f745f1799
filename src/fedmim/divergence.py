"""What it means that a run has diverged, from the records of its rounds.

An upload with NaN or infinity is rejected. Where all uploads of a round are, the model stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

STALLED_ROUNDS = 3  # so many in a row without an accepted upload, and a run has diverged


def stalled_rounds(records: Sequence[Mapping[str, Any]]) -> int:
    """How many rounds at the end of a run had every upload rejected, so that the model stayed as it was."""
    count = 0
    for record in reversed(records):
        if not record["refused"] or record["train_loss"] is not None:
            break
        count += 1
    return count


def diverged(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run has diverged so far: every upload of its last three rounds was rejected, or of all if it has fewer.

    Its figures are then those of a model that no longer learns, or never did.
    """
    return bool(records) and stalled_rounds(records) >= min(STALLED_ROUNDS, len(records))


def divergence(records: Sequence[Mapping[str, Any]]) -> str:
    """What happened to a run that has diverged, and what to do."""
    first, last = (records[-back]["round"] for back in (stalled_rounds(records), 1))
    when = f"of round {last}" if first == last else f"of rounds {first} to {last}"
    return (
        f"diverged: every upload {when} was rejected, because it was not finite, and the model stayed as it was; "
        "try a smaller lr or clip_norm"
    )
