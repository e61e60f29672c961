"""What jax.distributed.initialize() makes of Slurm's variables (jax/_src/clusters/slurm_cluster.py), without jax."""

import os
import sys

NEEDED = (
    "SLURM_JOB_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_STEP_NUM_NODES",
)
line = "no cluster"
if all(name in os.environ for name in NEEDED):
    port = int(os.environ["SLURM_JOB_ID"]) % 2**12 + (65535 - 2**12 + 1)
    assert 61440 <= port <= 65535
    line = f"process {os.environ['SLURM_PROCID']} of {os.environ['SLURM_NTASKS']}, local {os.environ['SLURM_LOCALID']}"
with open(os.path.join(os.environ["PLAIN_OUT"], "results"), "a") as file:
    file.write(f"jax {sys.argv[1]}: {line}\n")
