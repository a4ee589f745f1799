"""FEMNIST of LEAF (Caldas et al. 2018; Cohen et al. 2017): handwritten digits and letters, 28x28, by writer.

Labels are 0-9 for digits, 10-35 for upper-case and 36-61 for lower-case letters. LEAF divides grey values from 0 to 255
by 255. They are stored as bytes, and models get LEAF's values.
"""

from __future__ import annotations

from array import array
from typing import Any

from fedmim.data.descriptor import IMAGE_DEFAULTS
from fedmim.data.lazy_arrays import np
from fedmim.data.leaf import Leaf, shown
from fedmim.data.transforms import Normalise

PIXELS = 28 * 28


class Femnist(Leaf):
    """The characters; each writer is a client."""

    def encode_inputs(self, x: list[Any]) -> bytes:
        """One byte per pixel."""
        values = array("d")
        for image in x:
            if not isinstance(image, list) or len(image) != PIXELS:
                raise ValueError(f"{shown(image)} is not a list of {PIXELS} values")
            try:
                values.extend(image)
            except (TypeError, OverflowError) as error:
                raise ValueError(f"an image has a value that is no number ({error})") from error
        pixels = np.frombuffer(values)
        if not ((pixels >= 0) & (pixels <= 1)).all():
            raise ValueError("an image has a value outside [0, 1]")
        levels = (255 * pixels).round()
        if not (abs(255 * pixels - levels) < 1e-3).all():
            raise ValueError("an image has a value that is not a grey level divided by 255")
        return levels.astype(np.uint8).tobytes()

    def encode_labels(self, y: list[Any]) -> bytes:
        """One byte per label."""
        for label in y:
            if type(label) is not int or not 0 <= label < self.classes:
                raise ValueError(f"{shown(label)} is not a label from 0 to {self.classes - 1}")
        return bytes(y)


FEMNIST = Femnist(
    name="femnist",
    title="FEMNIST",
    description="grey 28x28 handwritten digits and letters; the writers are the natural clients (LEAF)",
    classes=62,
    shape=(1, 28, 28),
    prepare=Normalise((0.0,), (1.0,)),
    folder="femnist",
    # LEAF uses Image.ANTIALIAS, which Pillow 10 removed.
    script="git clone https://github.com/TalwalkarLab/leaf && cd leaf/data/femnist && pip install numpy 'pillow<10' && "
    "./preprocess.sh -s niid --sf 0.05 -k 0 -t sample --smplseed 1549786595 --spltseed 1549786796",
    # The sample, its seeds, the learning rate (of minibatch SGD) and the target are those of LEAF's experiment.
    defaults=IMAGE_DEFAULTS
    | {
        "split": "natural",
        "clients": 0,
        "batch_size": 10,
        "lr": 0.06,
        "lr_decay": 1.0,
        "weight_decay": 0.0,
        "weighting": "samples",
    },
    target=0.75,
)
