"""run.py CONFIG LENGTH: a search of one trial, which is told all at once, as Determined's own SingleSearchMethod does."""

import sys
import uuid
from pathlib import Path

from determined import searcher


class One(searcher.SearchMethod):
    def initial_operations(self, state):
        request = uuid.uuid4()
        return [
            searcher.Create(request, {"global_batch_size": 2}),
            searcher.ValidateAfter(request, int(sys.argv[2])),
            searcher.Close(request),
            searcher.Shutdown(),
        ]

    def on_trial_created(self, state, request):
        return []

    def on_validation_completed(self, state, request, metric, length):
        return []

    def on_trial_closed(self, state, request):
        return []

    def progress(self, state):
        return 0.0

    def on_trial_exited_early(self, state, request, reason):
        return []

    def save_method_state(self, path):
        pass

    def load_method_state(self, path):
        pass


if __name__ == "__main__":
    searcher.LocalSearchRunner(One(), searcher_dir=Path(sys.argv[1] + ".state")).run(sys.argv[1], model_dir="ctx")
