"""Processes and signals of user code on this machine alone."""

from __future__ import annotations

from tests.e2e.conftest import User

DAEMON = """\
import multiprocessing, time
import determined as det

def prefetch():
    while True:
        time.sleep(0.05)

if __name__ == "__main__":
    multiprocessing.Process(target=prefetch, daemon=True).start()
    with det.core.init() as core:
        late = multiprocessing.Process(target=prefetch, daemon=True)
        late.start()
        pool = multiprocessing.Pool(2)
        pool.apply_async(prefetch)
        core.train.report_validation_metrics(steps_completed=1, metrics={"validation_loss": 1.0})
    pool.terminate()
    print("training done", flush=True)
"""
MONITOR = """\
sleep 600 & monitor=$!
trap 'echo told by USR1' USR1
python3 train.py
kill -USR1 $$
kill $monitor; wait $monitor
echo "monitor ended with $?"
"""


def test_a_training_ends_whose_workers_are_daemons_or_end_by_term(user: User) -> None:
    """Python waits at its end for a daemon process to have ended of TERM; a shell for its monitor."""
    user.write("context/train.py", DAEMON)
    user.write("context/monitor.sh", MONITOR)
    experiments = [user.create(entrypoint=words) for words in ("python3 train.py", "bash monitor.sh")]
    for experiment in experiments:
        user.det("experiment", "wait", str(experiment))
        assert user.experiment(experiment)["state"] == "STATE_COMPLETED"
        assert "training done" in user.log(experiment)
    log = user.log(experiments[1])
    assert "told by USR1" in log and "monitor ended with 143" in log, log
