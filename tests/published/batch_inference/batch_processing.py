"""Every picture of a dataset is embedded once, by two workers."""

import logging

import torch
from torch import nn

import determined as det
from determined.pytorch import experimental


class EmbeddingProcessor(experimental.TorchBatchProcessor):
    def __init__(self, context):
        self.context = context
        self.model = context.prepare_model_for_inference(nn.Linear(4, 2))
        self.rank = det.get_cluster_info() and context._core_context.distributed.rank
        self.output, self.last_index = [], 0
        self.count = context.wrap_reducer(lambda counts: {"seen": sum(counts)})

    def process_batch(self, batch, batch_idx) -> None:
        (images,) = self.context.to_device(batch)
        with torch.no_grad():
            self.output.append({"embeddings": self.model(images), "id": batch_idx})
        self.count.update(len(images))
        self.last_index = batch_idx

    def on_checkpoint_start(self):
        if not self.output:
            return
        with self.context.upload_path() as path:
            torch.save(self.output, path / f"embedding_{self.last_index}.pt")
        self.output = []


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    dataset = torch.utils.data.TensorDataset(torch.arange(160.0).reshape(40, 4))
    experimental.torch_batch_process(EmbeddingProcessor, dataset, batch_size=4, checkpoint_interval=2)
