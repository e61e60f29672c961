"""Configurations: YAML text to validated models, with errors that name file, line and field. Pure.

``loading.load`` reads an experiment's, ``site.load_site`` a site's; ``hyperparameters`` is the space that searchers draw from.
"""

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.loading import Loaded, load, with_overrides

__all__ = ["ExperimentConfig", "Loaded", "load", "with_overrides"]
