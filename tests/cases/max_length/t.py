import determined as det

with det.core.init() as core:
    print("the length is", det.get_cluster_info().trial._config["searcher"]["max_length"]["batches"])
    for step in range(1, 5):
        core.train.report_validation_metrics(step, {"v": step, "batches": step})
