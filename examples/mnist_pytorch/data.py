"""Handwritten digits in the files of MNIST: scikit-learn's, which need no network, each 8 x 8 image enlarged to 28 x 28."""

import gzip
import os
import pathlib
import struct
import tempfile

import numpy as np
import torch
from sklearn.datasets import load_digits

IMAGES, LABELS = "{}-images-idx3-ubyte.gz", "{}-labels-idx1-ubyte.gz"


def directory() -> pathlib.Path:
    """Where the files are on this machine; they are made unless another worker has."""
    place = pathlib.Path(tempfile.gettempdir()) / f"digits-as-mnist-{os.getuid()}"
    if not place.is_dir():
        made = pathlib.Path(tempfile.mkdtemp(dir=place.parent))
        _write(made)
        try:
            made.rename(place)
        except OSError:  # another worker was first
            for file in made.iterdir():
                file.unlink()
            made.rmdir()
    return place


def dataset(part: str) -> torch.utils.data.TensorDataset:
    """``part`` is "train" or "t10k": images (n, 1, 28, 28), normalized as is usual for MNIST, and labels (n,)."""
    place = directory()
    with gzip.open(place / IMAGES.format(part)) as file:
        _, count, rows, columns = struct.unpack(">4I", file.read(16))
        images = np.frombuffer(file.read(), np.uint8).reshape(count, 1, rows, columns)
    with gzip.open(place / LABELS.format(part)) as file:
        labels = np.frombuffer(file.read()[8:], np.uint8)
    pixels = (torch.tensor(images, dtype=torch.float32) / 255 - 0.1307) / 0.3081
    return torch.utils.data.TensorDataset(pixels, torch.tensor(labels, dtype=torch.int64))


def _write(place: pathlib.Path) -> None:
    digits = load_digits()
    large = np.kron(digits.images / 16 * 255, np.ones((1, 3, 3))).astype(np.uint8)
    large = np.pad(large, ((0, 0), (2, 2), (2, 2)))
    held_out = np.arange(len(large)) % 5 == 0
    for part, rows in (("train", ~held_out), ("t10k", held_out)):
        images, labels = large[rows], digits.target[rows].astype(np.uint8)
        with gzip.open(place / IMAGES.format(part), "wb") as file:
            file.write(struct.pack(">4I", 2051, *images.shape) + images.tobytes())
        with gzip.open(place / LABELS.format(part), "wb") as file:
            file.write(struct.pack(">2I", 2049, len(labels)) + labels.tobytes())
