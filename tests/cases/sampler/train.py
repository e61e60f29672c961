import determined as det

with det.core.init() as core:
    core.train.report_validation_metrics(1, {"v": det.get_cluster_info().trial.hparams["x"]})
