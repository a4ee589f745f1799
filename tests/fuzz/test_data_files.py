"""Damaged data files and hostile archives: read, or rejected by our own error, in bounded memory, inside the folder."""

import contextlib
import gzip
import hashlib
import io
import json
import pickle
import struct
import tarfile
import zipfile
import zlib
from dataclasses import replace

import numpy as np
import pytest
import small_leaf
import small_tiny_imagenet
import torch
from fuzzing import bounded_memory, damaged, fuzzed
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save

from fedmim.data import load
from fedmim.data.cifar import CIFAR10, load_arrays
from fedmim.data.fetching import unpack_archive
from fedmim.data.heart_disease import HOSPITALS
from fedmim.errors import UserError

RNG = np.random.default_rng(0)


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


IMAGES, LABELS = RNG.integers(0, 256, (3, 28, 28), dtype=np.uint8), np.array([0, 9, 4], dtype=np.uint8)
FASHION = {
    f"{part}-{kind}": idx(a)
    for part in ("train", "t10k")
    for kind, a in (("images-idx3-ubyte", IMAGES), ("labels-idx1-ubyte", LABELS))
}
PATIENT = "63,1,1,145,233,1,2,150,0,2.3,3,0,6,{}\n67,1,4,160,286,0,2,108,1,1.5,2,3,3,{}\n"
HEART = "".join(PATIENT.format(n % 2, n % 5) for n in range(4)).encode()
CIFAR = pickle.dumps({b"data": RNG.integers(0, 256, (2, 3072), dtype=np.uint8), b"labels": [1, 2]}, 2)
TENSORS = {
    "x_train": torch.rand(6, 4),
    "y_train": torch.arange(6) % 3,
    "x_test": torch.rand(3, 4),
    "y_test": torch.arange(3),
    "client": torch.arange(6) % 2,
    "client_test": torch.arange(3) % 2,
}


@contextlib.contextmanager
def refusing():
    """Only our own error may come, and no large allocation."""
    with bounded_memory(), contextlib.suppress(UserError):
        yield


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def header(count):
    return struct.pack(">HBB3I", 0, 8, 3, count, 28, 28)


@fuzzed(100)
@given(name=st.sampled_from(list(FASHION)), zipped=st.booleans(), data=st.data())
def test_damaged_idx_files_are_read_or_rejected(tmp_path, name, zipped, data):
    content = data.draw(damaged(gzip.compress(FASHION[name], mtime=0) if zipped else FASHION[name]))
    put(tmp_path / "fashion-mnist", {n: c for n, c in FASHION.items() if n != name} | {name + ".gz" * zipped: content})
    with refusing():
        found = load("fashion-mnist", tmp_path)
        assert not zipped or torch.equal(found.train[0][:, 0], torch.from_numpy(IMAGES))


@pytest.mark.parametrize("content", [header(2**32 - 1), header(10**6), header(3) + bytes(3000)])
def test_an_idx_file_with_a_wrong_size_in_its_header_is_rejected(tmp_path, content):
    put(tmp_path / "fashion-mnist", FASHION | {"train-images-idx3-ubyte": content})
    with bounded_memory(), pytest.raises(UserError, match="its header says"):
        load("fashion-mnist", tmp_path)


def test_a_gzip_bomb_is_rejected_before_it_is_unpacked(tmp_path):
    bomb = zlib.compressobj(9, wbits=31)
    content = bomb.compress(header(3)) + b"".join(bomb.compress(bytes(1 << 20)) for _ in range(200)) + bomb.flush()
    others = {name: raw for name, raw in FASHION.items() if name != "train-images-idx3-ubyte"}
    put(tmp_path / "fashion-mnist", others | {"train-images-idx3-ubyte.gz": content})
    with bounded_memory(64 << 20), pytest.raises(UserError, match="more than 2352 bytes"):
        load("fashion-mnist", tmp_path)


@fuzzed(100)
@given(content=damaged(HEART))
@example(content=HEART.replace(b"233", b"1e308"))
@example(content=HEART.replace(b"233", b"9" * 5000))
def test_damaged_tables_of_patients_are_read_or_rejected(tmp_path, content):
    files = {f"processed.{hospital}.data": HEART for hospital in HOSPITALS}
    put(tmp_path / "heart-disease", files | {"processed.va.data": content})
    with refusing():
        assert load("heart-disease", tmp_path).train[0].isfinite().all()


@fuzzed(100)
@given(content=damaged(save(TENSORS)))
@example(content=save(TENSORS | {"y_test": torch.tensor([0, 1, 10**9])}))
@example(content=save(TENSORS | {"x_train": torch.zeros(6, 0), "x_test": torch.zeros(3, 0)}))
@example(content=struct.pack("<Q", 2**63) + b"{}")
@example(content=struct.pack("<Q", 100) + b"[" * 100)
def test_damaged_tensors_are_read_or_rejected(tmp_path, content):
    path = tmp_path / "own.safetensors"
    path.write_bytes(content)
    with refusing():
        found = load(f"tensors:{path}")
        assert found.classes < 2000
        assert found.train[0][0].numel() > 0


SHAKESPEARE, FEMNIST = (json.dumps(made["train"]).encode() for made in (small_leaf.shakespeare(), small_leaf.femnist()))


@fuzzed(100)
@given(content=damaged(SHAKESPEARE))
@example(content=b'{"users": ["x", "y"], "user_data": {"x": {"x": [], "y": []}, "y": {"x": [], "y": []}}}')
@example(content=SHAKESPEARE.replace(b'"y"', b'"y": ' + b"9" * 5000 + b', "y"', 1))
@example(content=b'{"user_data":' * 2000)
def test_damaged_text_of_leaf_is_read_or_rejected(tmp_path, content):
    put(tmp_path / "shakespeare" / "train", {"a.json": content})
    put(tmp_path / "shakespeare" / "test", {"a.json": SHAKESPEARE})
    with refusing():
        found = load("shakespeare", tmp_path)
        assert found.train[0].max() < 80
        assert sum(len(own) for own in found.natural) == len(found.train[0]) == len(found.train[1])


@fuzzed(60)
@given(content=damaged(FEMNIST))
@example(content=FEMNIST.replace(b"[[0.", b"[[1e400, 0.", 1))
@example(content=FEMNIST.replace(b"[[0.", b"[[" + b"9" * 5000 + b", 0.", 1))
def test_damaged_images_of_leaf_are_read_or_rejected(tmp_path, content):
    put(tmp_path / "femnist" / "train", {"a.json": content})
    put(tmp_path / "femnist" / "test", {"a.json": FEMNIST})
    with refusing():
        found = load("femnist", tmp_path)
        assert found.train[1].max() < 62
        assert found.train[0].shape == (len(found.train[1]), 1, 28, 28)


@fuzzed(60)
@given(content=damaged(CIFAR))
def test_a_damaged_cifar_file_is_rejected_by_its_checksum(tmp_path, content):
    sums = {"train_files": {"a": hashlib.md5(CIFAR).hexdigest()}, "test_files": {"b": hashlib.md5(CIFAR).hexdigest()}}
    put(tmp_path / CIFAR10.folder, {"a": content, "b": CIFAR})
    with refusing():
        replace(CIFAR10, **sums).load(tmp_path)
        assert content == CIFAR


@fuzzed(200)
@given(content=damaged(CIFAR))
def test_a_damaged_pickle_gives_plain_values_or_an_error(content):
    """Past the checksum: whatever its bytes say, nothing is imported and nothing is called but what makes arrays."""
    allowed = (dict, list, tuple, set, frozenset, bytes, bytearray, str, int, float, complex, bool, type(None))
    with bounded_memory(), contextlib.suppress(Exception):
        found = load_arrays(content)
        assert_plain(found, (*allowed, np.ndarray, np.dtype))


def assert_plain(value, allowed):
    if not isinstance(value, allowed):
        raise BaseException(f"a pickle gave {type(value)}")  # which no suppression hides
    for inner in (
        (*value.keys(), *value.values())
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else ()
    ):
        assert_plain(inner, allowed)


def png(size=(8, 8)):
    buffer = io.BytesIO()
    Image.new("RGB", size, (3, 4, 5)).save(buffer, "PNG")
    return buffer.getvalue()


def with_png_size(width, height):
    """A PNG whose header has a wrong size."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    whole = png()
    return whole[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + whole[33:]


@fuzzed(60)
@given(content=damaged(png()))
@example(content=with_png_size(9000, 9000))
@example(content=with_png_size(20_000, 20_000))
@example(content=with_png_size(2**31 - 1, 2**31 - 1))
@example(content=with_png_size(8, 8))
def test_damaged_images_are_read_or_rejected(tmp_path, content):
    for part in ("train", "test"):
        put(tmp_path / part / "a", {"1.png": png()})
    (tmp_path / "train" / "a" / "2.png").write_bytes(content)
    with refusing():
        assert load(f"folder:{tmp_path}").train[0].shape == (2, 3, 8, 8)


def test_images_that_do_not_fit_into_memory_are_rejected_before_they_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr("fedmim.memory.available_memory", lambda: 10**9)
    for part in ("train", "test"):
        put(tmp_path / part / "a", {f"{number}.png": png() for number in range(20)})
    with bounded_memory(), pytest.raises(UserError, match=r"image_size: 40 images of 3000x3000 .* 2\.2 GB"):
        load(f"folder:{tmp_path}", image_size=3000)


@fuzzed(40)
@given(data=st.data(), file=st.sampled_from(["wnids.txt", "val/val_annotations.txt", "train/n02/images/n02_0.JPEG"]))
def test_a_damaged_tiny_imagenet_is_read_or_rejected(tmp_path_factory, data, file):
    folder = small_tiny_imagenet.write(tmp_path_factory.mktemp("data"))
    (folder / file).write_bytes(data.draw(damaged((folder / file).read_bytes())))
    with refusing():
        assert load("tiny-imagenet:3", folder.parent).classes == 3


# Archives


MEMBERS = {"inner/a": b"first" * 100, "inner/b": bytes(range(256))}


def tar_of(members, **changes):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in changes.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(content) if info.isfile() else None)
    return buffer.getvalue()


def zip_of(members, mode=0o644):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


TAR, ZIP = tar_of(MEMBERS), zip_of(MEMBERS)


def unpacked(tmp_path, name, content):
    """Unpack into a folder of its own; what there is outside of it does not change."""
    outer = tmp_path / "outer"
    folder = outer / "folder"
    if outer.exists():
        for path in sorted(outer.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    (outer / name).write_bytes(content)
    try:
        with bounded_memory(128 << 20):
            unpack_archive(outer / name, folder)
    except OSError as error:
        if error.errno is None:  # else of the file system: a name that it does not take
            raise
    finally:
        assert sorted(path.name for path in outer.iterdir()) == sorted([name, "folder"])
        assert not any(path.is_symlink() for path in folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@fuzzed(150)
@given(content=damaged(TAR), data=st.data(), zipped=st.booleans())
def test_damaged_tar_archives_are_unpacked_inside_the_folder_or_rejected(tmp_path, content, data, zipped):
    packed = data.draw(damaged(gzip.compress(TAR, mtime=0))) if zipped else gzip.compress(content)
    with contextlib.suppress(UserError):
        found = unpacked(tmp_path, "a.tar.gz", packed)
        assert not zipped or found == MEMBERS  # a tar archive has no checksum of its own, gzip has one


@fuzzed(150)
@given(content=damaged(ZIP))
def test_damaged_zip_archives_are_unpacked_inside_the_folder_or_rejected(tmp_path, content):
    with contextlib.suppress(UserError):
        assert set(unpacked(tmp_path, "a.zip", content).values()) <= {*MEMBERS.values(), b""}


def encrypted(content):
    """The same zip with the bit for encryption in both of its headers."""
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.index(signature) + place
        content = content[:at] + bytes([content[at] | 1]) + content[at + 1 :]
    return content


def gzip_bomb():
    """A tar archive with a long-name header of 10 GB and 300 MB of zeros."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 10**10
    bomb = zlib.compressobj(9, wbits=31)
    content = bomb.compress(info.tobuf(tarfile.GNU_FORMAT))
    return content + b"".join(bomb.compress(bytes(1 << 20)) for _ in range(300)) + bomb.flush()


def wrong_crc(content):
    return content[:-8] + bytes([content[-8] ^ 1]) + content[-7:]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.zip", encrypted(ZIP)),
        ("a.zip", zip_of({"link": b"/etc/passwd"}, mode=0o120777)),
        ("a.zip", zip_of({"device": b""}, mode=0o020666)),
        ("a.zip", zip_of({"/absolute": b""})),
        ("a.zip", zip_of({"../up": b""})),
        ("a.zip", zip_of({"..\\up": b""})),
        ("a.zip", zip_of({"C:\\up": b""})),
        ("a.tar.gz", gzip.compress(tar_of({"a": b""}, type=tarfile.SYMTYPE, linkname="b"))),
        ("a.tar.gz", gzip.compress(tar_of({"a": b""}, type=tarfile.LNKTYPE, linkname="b"))),
        ("a.tar.gz", gzip.compress(tar_of({"a": b""}, type=tarfile.CHRTYPE))),
        ("a.tar.gz", gzip.compress(tar_of({"a": b""}, type=tarfile.FIFOTYPE))),
        ("a.tar.gz", gzip.compress(tar_of({"/absolute": b""}))),
        ("a.tar.gz", gzip.compress(tar_of({"../up": b""}))),
        ("a.tar.gz", wrong_crc(gzip.compress(TAR))),
        ("a.tar.gz", gzip_bomb()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_hostile_archives_are_rejected_and_leave_nothing(tmp_path, name, content):
    with pytest.raises(UserError, match=r"cannot be unpacked|was not unpacked"):
        unpacked(tmp_path, name, content)
    assert not list((tmp_path / "outer" / "folder").iterdir())


def test_a_zip_that_is_larger_than_any_data_set_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("fedmim.data.fetching.LARGEST_CONTENT", 1 << 20)
    with pytest.raises(UserError, match="2,097,152 bytes is larger than any data set"):
        unpacked(tmp_path, "a.zip", zip_of({"a": bytes(2 << 20)}))
    with pytest.raises(UserError, match="larger than any data set"):
        unpacked(
            tmp_path, "a.tar.gz", gzip.compress(tar_of({"a": bytes(1 << 19), "b": bytes(1 << 19), "c": bytes(1 << 19)}))
        )
