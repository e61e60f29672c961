"""Search the hyperparameters of a Python function: logistic regression on two noisy moons, stopped early where it learns badly.

python tune.py
"""

import math
import random

import dethpc


def moons(count, noise, seed):
    """Points (1, x, y, x², xy, y²) of two half circles, and on which of them each lies."""
    draw = random.Random(seed)
    for n in range(count):
        angle, side = draw.uniform(0, math.pi), n % 2
        x = math.cos(angle) + side + draw.gauss(0, noise)
        y = (math.sin(angle) if side == 0 else 0.5 - math.sin(angle)) + draw.gauss(0, noise)
        yield (1.0, x, y, x * x, x * y, y * y), side


def train(hparams, core):
    """``core`` is the Core API's context: reports feed the search, and it says when to stop."""
    data, held_out = list(moons(200, hparams["noise"], 1)), list(moons(200, hparams["noise"], 2))
    weights = [0.0] * 6

    def chance(features):
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, sum(w * f for w, f in zip(weights, features))))))

    for epoch in range(1, 17):
        for features, side in data:
            slope = chance(features) - side
            for i, feature in enumerate(features):
                weights[i] -= hparams["lr"] * (slope * feature + hparams["decay"] * weights[i])
        loss = -sum(math.log(max(1e-9, chance(f) if side else 1 - chance(f))) for f, side in held_out) / len(held_out)
        core.train.report_validation_metrics(epoch, {"loss": loss, "epoch": epoch})
        if core.preempt.should_preempt():
            return


if __name__ == "__main__":
    space = {"lr": (1e-4, 1.0, "log"), "decay": [0.0, 1e-4, 1e-2], "noise": 0.2}
    sweep = dethpc.sweep(
        train, space, searcher="adaptive_asha", max_trials=8, max_time=16, time_metric="epoch", name="moons"
    )
    print(sweep.result().to_string() if hasattr(sweep.table(), "to_string") else sweep.table())
    print(f"best: {sweep.best.hparams} with a loss of {sweep.best.result()['loss']:.3f}")
