"""Images in the files of MNIST, made on the spot: each digit is a bar at a place of its own."""

import gzip
import os
import pathlib
import struct

import numpy as np

COUNTS = {"train": 640, "t10k": 128}


def read(folder, part):
    """Images (n, 28, 28) and labels (n,), both bytes, from the two files of ``part``, which are written if need be."""
    files = [pathlib.Path(folder) / f"{part}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    if not all(file.exists() for file in files):
        _write(files, COUNTS[part])
    images, labels = (gzip.decompress(file.read_bytes()) for file in files)
    count, rows, columns = struct.unpack(">3I", images[4:16])
    return np.frombuffer(images[16:], np.uint8).reshape(count, rows, columns), np.frombuffer(labels[8:], np.uint8)


def _write(files, count):
    random = np.random.default_rng(count)
    labels = random.integers(0, 10, count).astype(np.uint8)
    images = random.integers(0, 60, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels):
        image[2 * label + 3 : 2 * label + 6, 4:24] = 255
    heads = struct.pack(">4I", 2051, *images.shape), struct.pack(">2I", 2049, count)
    for file, head, body in zip(files, heads, (images, labels)):
        own = file.with_name(f"{file.name}.{os.getpid()}")  # workers write at the same time
        own.write_bytes(gzip.compress(head + body.tobytes()))
        own.rename(file)
