import pathlib
from typing import Any, Dict

import mnist_files
import torch


def get_dataset(data_dir: str, train: bool) -> Any:
    images, labels = mnist_files.read(data_dir, "train" if train else "t10k")
    pixels = (torch.tensor(images).float().unsqueeze(1) / 255 - 0.1307) / 0.3081
    return torch.utils.data.TensorDataset(pixels, torch.tensor(labels).long())


def download_dataset(download_directory: str, data_config: Dict[str, Any]) -> str:
    assert data_config["url"].endswith("/pytorch_mnist.tar.gz")
    pathlib.Path(download_directory).mkdir(exist_ok=True)
    return download_directory
