"""A small causal language model over a made-up text; DeepSpeed's configuration, if any, comes by hyperparameter."""

import logging
import sys
from dataclasses import dataclass, field

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

import determined as det
from determined.transformers import DetCallback


@dataclass
class DataTrainingArguments:
    block_size: int = field(default=16)


class Blocks(torch.utils.data.Dataset):
    """What follows a token is always the same token."""

    def __init__(self, count, block_size):
        self.starts, self.size = range(count), block_size

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        ids = torch.arange(i, i + self.size) % 23
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def main(det_callback, tb_callback, model, data_args, training_args):
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=Blocks(64, data_args.block_size),
        eval_dataset=Blocks(16, data_args.block_size),
        data_collator=default_data_collator,
        callbacks=[det_callback],
    )
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    hparams = info.trial.hparams
    if hparams.get("deepspeed_mode"):
        from determined.pytorch import dsat

        sys.argv[1:] = dsat.get_hf_args_with_overwrites(args=sys.argv[1:], hparams=hparams)
    data_args, training_args = HfArgumentParser(
        (DataTrainingArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    distributed = det.core.DistributedContext.from_torch_distributed()
    with det.core.init(distributed=distributed) as core_context:
        torch.manual_seed(training_args.seed)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=23, n_positions=32, n_embd=16, n_layer=1, n_head=2))
        main(DetCallback(core_context, training_args), None, model, data_args, training_args)
