"""DeepSpeed's own loop, with the Core API beside it."""

import argparse
import logging

import deepspeed
import torch
from torch import nn

import determined as det
from determined.pytorch import dsat


def main(core_context, hparams, latest_checkpoint, args):
    ds_config = dsat.get_ds_config_from_hparams(hparams)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    engine, _, _, _ = deepspeed.initialize(
        args=args, model=model, model_parameters=model.parameters(), config=ds_config
    )
    steps_completed = 0
    if latest_checkpoint is not None:
        with core_context.checkpoint.restore_path(latest_checkpoint) as path:
            _, client = engine.load_checkpoint(str(path))
        steps_completed = client["steps_completed"]
    for op in core_context.searcher.operations():
        while steps_completed < op.length:
            with dsat.dsat_reporting_context(core_context, op=op):
                inputs = torch.randn(engine.train_micro_batch_size_per_gpu(), 8).to(engine.device)
                loss = nn.functional.mse_loss(engine(inputs).squeeze(-1), inputs.sum(dim=1))
                engine.backward(loss)
                engine.step()
            if engine.is_gradient_accumulation_boundary():
                steps_completed += 1
                if steps_completed % 4 == 0 or steps_completed == op.length:
                    metadata = {"steps_completed": steps_completed}
                    with core_context.checkpoint.store_path(metadata, shard=True) as (path, _):
                        engine.save_checkpoint(str(path), client_state=metadata)
                    if core_context.distributed.rank == 0:
                        core_context.train.report_validation_metrics(steps_completed, {"loss": loss.item()})
                        op.report_progress(steps_completed)
                    if core_context.preempt.should_preempt():
                        return
        if core_context.distributed.rank == 0:
            op.report_completed(loss.item())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()
    info = det.get_cluster_info()
    deepspeed.init_distributed()
    distributed = det.core.DistributedContext.from_deepspeed()
    with det.core.init(distributed=distributed) as core_context:
        main(core_context, info.trial.hparams, info.latest_checkpoint, args)
