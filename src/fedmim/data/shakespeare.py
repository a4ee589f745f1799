"""Shakespeare of LEAF (Caldas et al. 2018; McMahan et al. 2017): predict the next character of a speaking role.

A sample is 80 characters and the character that follows. A character is its index in LEAF's list of 80. LEAF's README
writes `-tf 0.8`, which preprocess.sh ignores; its flag is `--tf`.
"""

from __future__ import annotations

from typing import Any

from fedmim.data.leaf import Leaf, shown
from fedmim.data.transforms import as_indices

LENGTH = 80
VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
TO_INDICES = bytes.maketrans(VOCABULARY.encode(), bytes(range(len(VOCABULARY))))


class Shakespeare(Leaf):
    """The lines of Shakespeare's roles; each role of a play is a client."""

    def encode_inputs(self, x: list[Any]) -> bytes:
        """One byte per character."""
        return _indices(x, LENGTH)

    def encode_labels(self, y: list[Any]) -> bytes:
        """One byte per character."""
        return _indices(y, 1)


def _indices(texts: list[Any], length: int) -> bytes:
    for text in texts:
        if not isinstance(text, str) or len(text) != length:
            raise ValueError(f"{shown(text)} is not a string of length {length}")
    joined = "".join(texts)
    unknown = set(joined).difference(VOCABULARY)
    if unknown:
        raise ValueError(f"{min(unknown)!a} is not one of LEAF's {len(VOCABULARY)} characters")
    return joined.encode().translate(TO_INDICES)


SHAKESPEARE = Shakespeare(
    name="shakespeare",
    title="Shakespeare",
    description="next-character prediction; the speaking roles are the natural clients (LEAF)",
    classes=len(VOCABULARY),
    shape=(LENGTH,),
    tokens=len(VOCABULARY),
    prepare=as_indices,
    folder="shakespeare",
    script="git clone https://github.com/TalwalkarLab/leaf && cd leaf/data/shakespeare && "
    "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --tf 0.8 --smplseed 0 --spltseed 0",
    # Learning rate and clients per round as in LEAF's experiment; 10 of about 600 clients.
    defaults={
        "model": "lstm",
        "split": "natural",
        "clients": 0,
        "participation": 0.016,
        "rounds": 80,
        "batch_size": 10,
        "local_epochs": 1,
        "lr": 0.8,
        "lr_decay": 1.0,
        "weight_decay": 0.0,
        "weighting": "samples",
        "eval_every": 10,
    },
    target=0.4,
)
