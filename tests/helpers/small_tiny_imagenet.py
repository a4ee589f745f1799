"""Made-up Tiny ImageNet in the official folders: three classes of few images, each of one colour that JPEG keeps."""

from __future__ import annotations

from PIL import Image

WNIDS = ["n02", "n01", "n03"]


def write(directory):
    """Write four training and two validation images of each class below a folder; returns the data set's own."""
    folder = directory / "tiny-imagenet-200"
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    lines = []
    for label, wnid in enumerate(WNIDS):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        for number in range(4):
            save(images / f"{wnid}_{number}.JPEG", 60 * label + 10 * number)
        for number in range(2):
            save(folder / "val" / "images" / f"val_{label}{number}.JPEG", 60 * label + 5)
            lines.append(f"val_{label}{number}.JPEG\t{wnid}\t0\t0\t1\t1")
    lines.append("val_99.JPEG\tn99\t0\t0\t1\t1")  # of a class that this excerpt has not
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines))
    return folder


def save(path, level, mode="RGB", size=(64, 64)):
    """An image of one grey."""
    colour = level if mode == "L" else (level, level, level)
    Image.new(mode, size, colour).save(path, "JPEG", quality=95)
