"""Decode image files into one uint8 tensor, with several threads (Pillow's decoders release the GIL)."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fedmim.data.lazy_arrays import Tensor, np, torch
from fedmim.data.progress_bar import with_progress_bar
from fedmim.errors import UserError
from fedmim.memory import check_memory

LabelledFiles = list[tuple[Path, int]]
MOST_PIXELS = 64_000_000  # per file; below the size at which Pillow warns


def decode_images(labelled: LabelledFiles, what: str, resize: int | None = None) -> Tensor:
    """The images as RGB, uint8 (n, 3, H, W), in the order of the files.

    With `resize`, all become squares of this size. Otherwise all must have the size of the first.
    """
    files = [file for file, _ in labelled]
    first = _read_image(files[0], resize)
    check_memory(
        2 * len(files) * first.size,  # the images, and their copy with the channels first
        f"image_size: {len(files):,} images of {first.shape[1]}x{first.shape[0]} pixels",
        "use a smaller --image-size or fewer images",
    )
    images = torch.empty((len(files), *first.shape), dtype=torch.uint8)  # (n, H, W, 3), as in Pillow
    pixels = images.numpy()

    def place(index: int) -> None:
        image = _read_image(files[index], resize)
        if image.shape != first.shape:
            raise UserError(
                f"{files[index]} is {image.shape[1]}x{image.shape[0]} but {files[0]} is "
                f"{first.shape[1]}x{first.shape[0]}: images must have the same size; --image-size N resizes all to NxN"
            )
        pixels[index] = image

    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for _ in with_progress_bar(pool.map(place, range(len(files))), len(files), f"decoding {what}"):
            pass
    finally:
        # After an error or an interrupt, do not decode the remaining images.
        pool.shutdown(cancel_futures=True)
    return images.permute(0, 3, 1, 2).contiguous()


def labels_of(labelled: LabelledFiles) -> Tensor:
    """The labels of the files, int64 (n,)."""
    return torch.tensor([label for _, label in labelled])


def _read_image(path: Path, resize: int | None) -> np.typing.NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.width * image.height > MOST_PIXELS:  # also guards against decompression bombs
                raise ValueError(f"it has {image.width}x{image.height} pixels, the limit is {MOST_PIXELS:,}")
            rgb = image.convert("RGB")
    # Pillow raises many kinds of errors for damaged files, including SyntaxError.
    except Exception as error:
        raise UserError(f"{path} cannot be read as an image ({error}): repair or remove it") from error
    if resize is not None:
        rgb = rgb.resize((resize, resize), Image.Resampling.BILINEAR)
    return np.asarray(rgb)  # (H, W, 3)
