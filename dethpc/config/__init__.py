"""Configurations: YAML text to validated models, with errors that name file, line and field. Pure.

``loading.load`` reads an experiment's, ``site.load_site`` a site's; ``hyperparameters`` is the space that searchers draw from.
"""

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.loading import Loaded, load, merged, with_overrides
from dethpc.config.source import dump

__all__ = ["ExperimentConfig", "Loaded", "dump", "load", "merged", "with_overrides"]
