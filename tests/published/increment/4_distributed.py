"""The same by several workers, which this script starts itself."""

import logging
import subprocess
import sys

import determined as det


def main(core_context, increment_by):
    x = 0
    for batch in range(20):
        x += sum(core_context.distributed.allgather(increment_by))
        steps_completed = batch + 1
        if steps_completed % 10 == 0:
            if core_context.distributed.rank == 0:
                core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"x": x})
                core_context.train.report_validation_metrics(steps_completed=steps_completed, metrics={"x": x})
                with core_context.checkpoint.store_path({"steps_completed": steps_completed}) as (path, uuid):
                    path.joinpath("state").write_text(str(x))
            if core_context.preempt.should_preempt():
                return


def launcher_main(slots_per_node, cross_rank):
    procs = []
    for local_rank in range(slots_per_node):
        rank = cross_rank * slots_per_node + local_rank
        worker = ["python3", __file__, "worker", str(rank), str(local_rank)]
        procs.append(subprocess.Popen(["python3", "-m", "determined.launch.wrap_rank", str(rank), "--", *worker]))
    return max(proc.wait() for proc in procs)


def worker_main(info, slots_per_node, rank, local_rank):
    distributed = det.core.DistributedContext(
        rank=rank,
        size=len(info.container_addrs) * slots_per_node,
        local_rank=local_rank,
        local_size=slots_per_node,
        cross_rank=info.container_rank,
        cross_size=len(info.container_addrs),
        chief_ip=info.container_addrs[0],
    )
    with det.core.init(distributed=distributed) as core_context:
        main(core_context, increment_by=info.trial.hparams["increment_by"])


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    slots_per_node = len(info.slot_ids)
    if sys.argv[1] == "launcher":
        sys.exit(launcher_main(slots_per_node, info.container_rank))
    sys.exit(worker_main(info, slots_per_node, int(sys.argv[2]), int(sys.argv[3])))
