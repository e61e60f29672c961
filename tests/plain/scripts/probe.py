"""What a process sees of its job: ``probe.py LABEL [parent]`` writes it to PLAIN_OUT. ``parent``: the shell that started it."""

import json
import os
import resource
import sys

label, pid = sys.argv[1], os.getppid() if "parent" in sys.argv[2:] else os.getpid()
with open(f"/proc/{pid}/status") as file:
    status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
with open(f"/proc/{pid}/stat") as file:
    group, session = file.read().rpartition(")")[2].split()[2:4]
umask = os.umask(0)
os.umask(umask)
PYTHONS_OWN = 1 << 12 | 1 << 24  # SIGPIPE and SIGXFSZ, which Python ignores itself
seen = {
    "label": label,
    "env": dict(os.environ),
    "umask": f"{umask:04o}",
    "ignored": f"{int(status['SigIgn'], 16) & ~PYTHONS_OWN:x}",
    "blocked": status["SigBlk"],
    "leads its session": session == str(pid),
    "leads its group": group == str(pid),
    "stdin": os.readlink(f"/proc/{pid}/fd/0").split(":")[0],
    "cwd is": os.path.relpath(os.getcwd(), os.environ.get("SLURM_SUBMIT_DIR", "/")),
    "cpus": len(os.sched_getaffinity(0)),
    "nice": os.nice(0),
    "limits": {
        name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")
    },
}
path = os.path.join(os.environ["PLAIN_OUT"], f"{label}.{os.environ.get('SLURM_NODEID', 0)}.{os.getpid()}")
with open(path + ".new", "w") as file:
    json.dump(seen, file)
os.rename(path + ".new", path + ".json")
