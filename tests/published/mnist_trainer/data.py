import pathlib

import mnist_files
import torch


def get_dataset(data_dir: pathlib.Path, train: bool) -> torch.utils.data.Dataset:
    data_dir.mkdir(parents=True, exist_ok=True)
    images, labels = mnist_files.read(data_dir, "train" if train else "t10k")
    pixels = (torch.tensor(images).float().unsqueeze(1) / 255 - 0.1307) / 0.3081
    return torch.utils.data.TensorDataset(pixels, torch.tensor(labels).long())
