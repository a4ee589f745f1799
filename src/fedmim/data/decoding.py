"""Image files to one uint8 tensor, by several threads (Pillow's decoders release the interpreter lock)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmim.errors import UserError

LONG = 2000
"""From this many images on, decoding takes seconds and a progress bar is shown."""


def decode(files: Sequence[Path], what: str, resize: int | None = None) -> Tensor:
    """The images as RGB, uint8 (n, 3, H, W), in the order of `files`.

    With `resize` all become squares of that side; without, one of another size than the first is an error.
    """
    first = _read(files[0], resize)
    images = torch.empty((len(files), *first.shape), dtype=torch.uint8)  # (n, H, W, 3) here, as Pillow has it
    pixels = images.numpy()

    def place(index: int) -> None:
        image = _read(files[index], resize)
        if image.shape != first.shape:
            raise UserError(
                f"{files[index]} is {image.shape[1]}x{image.shape[0]}, and {files[0]} is "
                f"{first.shape[1]}x{first.shape[0]}: images must share one size; "
                "--image-size N resizes all to NxN"
            )
        pixels[index] = image

    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for _ in _shown(pool.map(place, range(len(files))), len(files), what):
            pass
    finally:
        # After an error or an interrupt the images that nobody has begun are not decoded any more.
        pool.shutdown(cancel_futures=True)
    return images.permute(0, 3, 1, 2).contiguous()


def _read(path: Path, resize: int | None) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            rgb = image.convert("RGB")
    # Pillow raises many kinds of errors on damaged files, SyntaxError among them.
    except Exception as error:
        raise UserError(f"{path} cannot be read as an image ({error}): mend or remove it") from error
    if resize is not None:
        rgb = rgb.resize((resize, resize), Image.Resampling.BILINEAR)
    return np.asarray(rgb)  # (H, W, 3)


def _shown(steps: Iterable[None], total: int, what: str) -> Iterable[None]:
    if total < LONG:
        return steps
    from rich.console import Console
    from rich.progress import track

    return track(steps, f"decoding {what}", total=total, console=Console(stderr=True), transient=True)
