"""Small data sets in LEAF's format."""

from __future__ import annotations

import json

import numpy as np

ROLES = {"HAMLET_HORATIO": "Where is my lord? I saw him once; he was a goodly king. ", "LEAR_KENT": "Royal Lear! "}
WRITERS = {"f0001_02": 3, "f0000_14": 5, "f0100_00": 2}


def speech(text, samples, start=0):
    """Windows of 80 characters of the repeated text, and what follows each."""
    text = text * (2 + (start + samples + 80) // len(text))
    places = range(start, start + samples)
    return {"x": [text[place : place + 80] for place in places], "y": [text[place + 80] for place in places]}


def shakespeare(samples=6, tests=2):
    """Both parts as JSON values. Like LEAF, it counts 79 test samples more than there are."""
    train = {name: speech(text, samples + n) for n, (name, text) in enumerate(ROLES.items())}
    test = {name: speech(text, tests, start=200) for name, text in ROLES.items()}
    return {"train": content(train), "test": content(test, counted=79)}


def femnist():
    rng = np.random.default_rng(0)

    def writer(samples):
        pixels = rng.integers(0, 256, (samples, 784)) / 255
        return {"x": pixels.tolist(), "y": rng.integers(0, 62, samples).tolist()}

    parts = {"train": WRITERS, "test": dict.fromkeys(WRITERS, 2)}
    return {part: content({name: writer(n) for name, n in sizes.items()}) for part, sizes in parts.items()}


def content(users, counted=0):
    sizes = [len(samples["y"]) + counted for samples in users.values()]
    return {"users": list(users), "num_samples": sizes, "user_data": users}


def write(directory, name, parts):
    """The files below directory/name, one per part; an element of a list becomes a file of its own."""
    folder = directory / name
    for part, found in parts.items():
        (folder / part).mkdir(parents=True, exist_ok=True)
        for number, each in enumerate(found if isinstance(found, list) else [found]):
            (folder / part / f"all_data_{number}_niid_0_keep_0_{part}_9.json").write_text(json.dumps(each))
    return folder
