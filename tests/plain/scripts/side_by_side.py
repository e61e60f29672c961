"""One of several steps that run at the same time: it waits until all of them are there. ``side_by_side.py LABEL COUNT``."""

import os
import runpy
import sys
import time

label, count = sys.argv[1], int(sys.argv[2])
folder = os.path.join(os.environ["PLAIN_OUT"], f"{label}.there")
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, str(os.getpid())), "w"):
    pass
while len(os.listdir(folder)) < count:
    time.sleep(0.05)
sys.argv = ["probe.py", label]
runpy.run_path("probe.py")
