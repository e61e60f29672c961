#!/usr/bin/env python3
"""Workers that something else has started: each reports, the first one its numbers."""

import logging

import torch
import torch.distributed as dist

import determined
from determined.experimental import core_v2


def main():
    logging.basicConfig(format=determined.LOG_FORMAT)
    dist.init_process_group("gloo")
    distributed = core_v2.DistributedContext.from_torch_distributed()
    core_v2.init(
        defaults=core_v2.DefaultConfig(name="unmanaged-distributed"),
        distributed=distributed,
    )
    size = dist.get_world_size()
    for i in range(10):
        loss = torch.tensor(float(dist.get_rank()))
        dist.all_reduce(loss)
        core_v2.train.report_training_metrics(steps_completed=size * i, metrics={"loss": loss.item() + i})
        if (i + 1) % 5 == 0:
            core_v2.train.report_validation_metrics(steps_completed=size * i, metrics={"loss": loss.item() / (i + 1)})
            with core_v2.checkpoint.store_path({"steps_completed": i}, shard=True) as (path, uuid):
                (path / f"state_{dist.get_rank()}").write_text(f"{i},{dist.get_rank()}")
    core_v2.close()


if __name__ == "__main__":
    main()
