"""A worker of torchrun, accelerate or mpirun: what they tell it of its rank, and how many devices it sees. Which of a node's they
are depends on what else runs there; the probes tell them by their place among the job's."""

import os
import sys

names = sys.argv[1:] or ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]
devices = len(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
line = " ".join(f"{name}={os.environ.get(name)}" for name in names) + f" devices={devices}"
with open(os.path.join(os.environ["PLAIN_OUT"], "results"), "a") as file:
    file.write(f"worker {line}\n")
