"""Images sorted by a small vision transformer, with what transformers' own example asks of its command line."""

import logging
import os
import sys
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

import numpy as np
import torch
import transformers
from transformers import HfArgumentParser, Trainer, TrainingArguments, ViTConfig, ViTForImageClassification
from transformers.trainer_utils import get_last_checkpoint

import determined as det
from determined.transformers import DetCallback

logger = logging.getLogger(__name__)


@dataclass
class DataTrainingArguments:
    dataset_name: Optional[str] = field(default=None)
    max_eval_samples: Optional[int] = field(default=None)


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="vit-tiny")


def dict2args(hparams: Dict[str, Any]) -> List[str]:
    out = []
    for key in hparams:
        out += [f"--{key}", str(hparams[key])]
    return out


def parse_input_arguments(hparams: Dict[str, Any]):
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    args = sys.argv[1:] + dict2args(hparams.get("training_arguments", {}))
    return parser.parse_args_into_dataclasses(args, look_for_args_file=False)


def leaves(count: int, seed: int) -> List[Dict[str, Any]]:
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        label = int(torch.randint(0, 3, (1,), generator=draw))
        picture = torch.rand(3, 8, 8, generator=draw)
        picture[label] += 1
        found.append({"image": picture, "labels": label})
    return found


def collate_fn(examples):
    return {
        "pixel_values": torch.stack([example["image"] for example in examples]),
        "labels": torch.tensor([example["labels"] for example in examples]),
    }


def compute_metrics(p):
    return {"accuracy": float(np.mean(np.argmax(p.predictions, axis=1) == p.label_ids))}


def main(det_callback, model_args, data_args, training_args):
    transformers.set_seed(training_args.seed)
    last_checkpoint = None
    if os.path.isdir(training_args.output_dir) and training_args.do_train:
        last_checkpoint = get_last_checkpoint(training_args.output_dir)
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=8,
        patch_size=4,
        num_labels=3,
    )
    trainer = Trainer(
        model=ViTForImageClassification(config),
        args=training_args,
        train_dataset=leaves(96, 1),
        eval_dataset=leaves(data_args.max_eval_samples or 48, 2),
        compute_metrics=compute_metrics,
        data_collator=collate_fn,
    )
    trainer.add_callback(det_callback)
    if training_args.do_train:
        checkpoint = training_args.resume_from_checkpoint or last_checkpoint
        train_result = trainer.train(resume_from_checkpoint=checkpoint)
        trainer.save_model()
        trainer.log_metrics("train", train_result.metrics)
        trainer.save_metrics("train", train_result.metrics)
        trainer.save_state()
    if training_args.do_eval:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    assert info
    model_args, data_args, training_args = parse_input_arguments(info.trial.hparams)
    if training_args.deepspeed:
        distributed = det.core.DistributedContext.from_deepspeed()
    else:
        distributed = det.core.DistributedContext.from_torch_distributed()
    with det.core.init(distributed=distributed) as core_context:
        user_data = {
            "finetuned_from": model_args.model_name_or_path,
            "tasks": "image-classification",
            "dataset": data_args.dataset_name,
            "tags": ["image-classification", "vision"],
        }
        det_callback = DetCallback(
            core_context, training_args, filter_metrics=["loss", "accuracy"], user_data=user_data
        )
        main(det_callback, model_args, data_args, training_args)
