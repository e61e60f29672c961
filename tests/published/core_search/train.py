"""A straight line is fitted by gradient descent; the script asks the searcher how long."""

import logging
import pathlib
import random

import determined as det


def load(latest_checkpoint, core_context):
    if latest_checkpoint is None:
        return 0.0, 0.0, 0
    with core_context.checkpoint.restore_path(latest_checkpoint) as path:
        slope, offset, batches = pathlib.Path(path, "state.txt").read_text().split()
    return float(slope), float(offset), int(batches)


def main(core_context, info):
    hparams = info.trial.hparams
    lr, size = hparams["optimizer"]["learning_rate"], hparams["global_batch_size"] // core_context.distributed.size
    draw = random.Random(info.trial.trial_seed + core_context.distributed.rank)
    slope, offset, batch = load(info.latest_checkpoint, core_context)
    for op in core_context.searcher.operations():
        while batch < op.length:
            xs = [draw.uniform(-1, 1) for _ in range(size)]
            errors = [slope * x + offset - (3 * x - 1) for x in xs]
            mine = (sum(e * x for e, x in zip(errors, xs)) / size, sum(errors) / size)
            everybody = core_context.distributed.allgather(mine)
            slope -= lr * sum(each[0] for each in everybody) / len(everybody)
            offset -= lr * sum(each[1] for each in everybody) / len(everybody)
            batch += 1
            if batch % 10 == 0 or batch == op.length:
                loss = (slope - 3) ** 2 + (offset + 1) ** 2
                if core_context.distributed.rank == 0:
                    core_context.train.report_training_metrics(batch, {"loss": loss, "slope": slope})
                    op.report_progress(batch)
                    with core_context.checkpoint.store_path({"steps_completed": batch}) as (path, _):
                        pathlib.Path(path, "state.txt").write_text(f"{slope} {offset} {batch}")
                if core_context.preempt.should_preempt():
                    return
        if core_context.distributed.rank == 0:
            core_context.train.report_validation_metrics(batch, {"validation_loss": loss})
            op.report_completed(loss)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    try:
        distributed = det.core.DistributedContext.from_torch_distributed()
    except KeyError:
        distributed = None
    with det.core.init(distributed=distributed) as core_context:
        main(core_context, info)
