import os

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

import determined as det
from determined.transformers import DetCallback

info = det.get_cluster_info()
kind = info.trial.hparams["kind"]


class Sums(torch.utils.data.Dataset):
    def __init__(self, n, first):
        self.n, self.first = n, first

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i + self.first)
        x = torch.randint(0, 30, (6,), generator=generator)
        return {"input_ids": x, "labels": x.sum() % 2}


class Crash(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 11 and info.latest_checkpoint is None:
            os._exit(3)


def metrics(_):
    """The best at step 4, then worse."""
    return {"fake": {2: 0.5, 4: 0.1, 6: 0.6, 8: 0.7, 10: 0.8, 12: 0.9}.get(trainer.state.global_step, 1.0)}


model = BertForSequenceClassification(
    BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
)
options = {
    "output_dir": "out",
    "max_steps": 12,
    "per_device_train_batch_size": 4,
    "logging_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "steps",
    "save_steps": 2,
    "report_to": [],
    "use_cpu": True,
    "learning_rate": 1e-2,
}
evaluated, callbacks = Sums(16, 100), []
if kind in ("multieval", "multieval_first"):
    evaluated = {"a": Sums(8, 100), "b": Sums(8, 200)}
else:
    options.update(
        load_best_model_at_end=True,
        metric_for_best_model="eval_fake",
        greater_is_better=False,
        save_total_limit=1 if kind == "best1" else 3,
    )
    callbacks = [Crash()]
args = TrainingArguments(**options)
with det.core.init() as core:
    trainer = Trainer(
        model,
        args,
        train_dataset=Sums(32, 0),
        eval_dataset=evaluated,
        compute_metrics=metrics,
        callbacks=[DetCallback(core, args), *callbacks],
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    best = trainer.state.best_model_checkpoint
    print("at the end", trainer.state.global_step, best and os.path.basename(best), os.path.isdir(best or "/nowhere"))
