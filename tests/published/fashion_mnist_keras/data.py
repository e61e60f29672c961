import numpy as np


def load_training_data():
    return _clothes(256, 1)


def load_validation_data():
    return _clothes(128, 2)


def _clothes(count, seed):
    """Pictures (N, 28, 28) in 0..1, each class a bar at a place of its own, and their classes."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 10, count)
    pictures = draw.uniform(0, 0.3, (count, 28, 28)).astype("float32")
    for picture, label in zip(pictures, labels):
        picture[2 * label + 3 : 2 * label + 6, 4:24] = 1
    return pictures, labels
