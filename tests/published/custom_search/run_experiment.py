"""A search method of one's own: the best half of the trials trains on."""

import argparse
import json
import logging
import pathlib
import uuid
from typing import Dict, List, Optional

import yaml

from determined import searcher


class HalvingSearchMethod(searcher.SearchMethod):
    def __init__(self, max_trials: int, max_length: int) -> None:
        self.max_trials, self.max_length = max_trials, max_length
        self.metrics: Dict[str, float] = {}
        self.closed = 0

    def initial_operations(self, _: searcher.SearcherState) -> List[searcher.Operation]:
        ops: List[searcher.Operation] = []
        for i in range(self.max_trials):
            create = searcher.Create(
                request_id=uuid.uuid4(),
                hparams={"global_batch_size": 8, "optimizer": {"learning_rate": 0.1 * (i + 1)}},
                checkpoint=None,
            )
            ops.append(create)
            ops.append(searcher.ValidateAfter(request_id=create.request_id, length=self.max_length // 2))
        return ops

    def on_trial_created(self, _: searcher.SearcherState, request_id: uuid.UUID) -> List[searcher.Operation]:
        return []

    def on_validation_completed(
        self, _: searcher.SearcherState, request_id: uuid.UUID, metric: float, train_length: int
    ) -> List[searcher.Operation]:
        if train_length == self.max_length:
            return [searcher.Close(request_id=request_id)]
        self.metrics[str(request_id)] = metric
        if len(self.metrics) < self.max_trials:
            return []
        ranked = [uuid.UUID(name) for name in sorted(self.metrics, key=self.metrics.get)]
        half = len(ranked) // 2
        promoted: List[searcher.Operation] = [
            searcher.ValidateAfter(request_id=name, length=self.max_length) for name in ranked[:half]
        ]
        return promoted + [searcher.Close(request_id=name) for name in ranked[half:]]

    def on_trial_closed(self, _: searcher.SearcherState, request_id: uuid.UUID) -> List[searcher.Operation]:
        self.closed += 1
        return [searcher.Shutdown()] if self.closed == self.max_trials else []

    def on_trial_exited_early(
        self, _: searcher.SearcherState, request_id: uuid.UUID, exited_reason: searcher.ExitedReason
    ) -> List[searcher.Operation]:
        return [searcher.Close(request_id=request_id)]

    def progress(self, searcher_state: searcher.SearcherState) -> float:
        units_completed = sum(
            float(self.max_length) if r in searcher_state.trials_closed else searcher_state.trial_progress[r]
            for r in searcher_state.trial_progress
        )
        return units_completed / (self.max_length * self.max_trials)

    def save_method_state(self, path: pathlib.Path) -> None:
        with path.joinpath("method_state").open("w") as f:
            json.dump({"metrics": self.metrics, "closed": self.closed}, f)

    def load_method_state(self, path: pathlib.Path) -> None:
        with path.joinpath("method_state").open("r") as f:
            state = json.load(f)
        self.metrics, self.closed = state["metrics"], state["closed"]


def main(config_file: pathlib.Path, model_dir: Optional[str]) -> None:
    config = yaml.safe_load(config_file.read_text())
    config["name"] = "custom_search"
    config["searcher"] = {"name": "custom", "metric": "validation_loss", "smaller_is_better": True, "unit": "batches"}
    search_runner = searcher.LocalSearchRunner(HalvingSearchMethod(2, 40), searcher_dir=pathlib.Path("searcher_dir"))
    experiment_id = search_runner.run(config, model_dir=model_dir)
    print("searched by experiment", experiment_id)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    parser = argparse.ArgumentParser()
    parser.add_argument("config_file", type=pathlib.Path)
    parser.add_argument("model_dir")
    args = parser.parse_args()
    main(args.config_file, args.model_dir)
