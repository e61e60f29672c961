"""Pools, daemon processes and executors whose processes are ended by TERM."""

import concurrent.futures
import multiprocessing
import os
import signal
import subprocess
import time


def idle(_=None):
    time.sleep(100000)


if __name__ == "__main__":
    with open(os.path.join(os.environ["PLAIN_OUT"], "results"), "a") as file:
        child = subprocess.Popen(["sleep", "100000"])
        child.terminate()
        print("subprocess", child.wait(), file=file)
        process = multiprocessing.get_context("fork").Process(target=idle)
        process.start()
        process.terminate()
        process.join()
        print("process", process.exitcode, file=file)
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            pool.apply_async(idle)
            print("pool", pool.apply(abs, (-1,)), file=file)
        executor = concurrent.futures.ProcessPoolExecutor(1)
        future = executor.submit(os.getpid)
        os.kill(future.result(), signal.SIGTERM)
        try:
            executor.submit(idle).result()
        except concurrent.futures.process.BrokenProcessPool:
            print("executor broken", file=file)
    multiprocessing.get_context("fork").Process(target=idle, daemon=True).start()  # ended by TERM at exit
