"""A worker of torchrun, accelerate or mpirun: what they tell it of its rank, and its device."""

import os
import sys

names = sys.argv[1:] or ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES"]
line = " ".join(f"{name}={os.environ.get(name)}" for name in names)
with open(os.path.join(os.environ["PLAIN_OUT"], "results"), "a") as file:
    file.write(f"worker {line}\n")
