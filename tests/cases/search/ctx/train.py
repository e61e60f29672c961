import determined as det

with det.core.init() as core:
    for op in core.searcher.operations():
        core.train.report_validation_metrics(op.length, {"loss": 1.0})
        op.report_completed(1.0)
