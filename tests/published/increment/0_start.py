"""Adds up a number. Knows nothing of a cluster."""

import logging
import sys
import time


def main(increment_by):
    x = 0
    for _ in range(20):
        x += increment_by
        time.sleep(0.01)
        print("x is now", x)


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.INFO)
    main(increment_by=1)
