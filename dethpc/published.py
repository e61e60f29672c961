"""Modules and names of the published ``determined`` that have no counterpart, and what stands in their place."""

from __future__ import annotations

from typing import Any, NoReturn

_TRIALS = "it is inside of Determined's trial controllers"
_PACKING = "contexts are packed by det experiment create and determined.experimental.client.create_experiment()"
_STORAGES = "files are copied by determined.core; the managers are in determined.common.storage"
_TENSORBOARD = "event files are written and fetched by determined.core and det"
_CONTROLLERS = (
    "it was inside of Determined's trial controllers: derive from determined.pytorch.PyTorchTrial or "
    "determined.pytorch.deepspeed.DeepSpeedTrial, or train with determined.core.init()"
)
_TASKS = "commands, notebooks, shells and TensorBoards come later"
_ROLES = "roles and groups come with several users"
_LOGIN = "which tokens are kept where is the client's own affair: use login(), login_with_cache() or login_from_task()"
_CERTIFICATES = "DET_MASTER_CERT_FILE and DET_MASTER_CERT_NAME say which certificate to trust"
_LAUNCHERS = "it is inside of Determined's launchers: run python3 -m determined.launch.NAME"
_HARNESS = (
    "it is inside of Determined's harness; published training code takes merge_dicts and import_from_path from there"
)
_FIT = "it belongs to TFKerasTrial, which Determined deprecated: "
_CALLBACK = (
    _FIT + "build and compile the model in a script, and pass determined.keras.DeterminedCallback to model.fit()"
)
_KERAS = (
    _FIT + "use keras.callbacks.{} beside determined.keras.DeterminedCallback, and name it in its stateful_callbacks"
)

MODULES = {
    "determined.common.api.analytics": "nobody is told what users do",
    "determined.common.api.metric": "it is inside of the WebUI's tables",
    "determined.common.check": "it is inside of Determined's own checks",
    "determined.common.constants": _TRIALS,
    "determined.common.context": _PACKING,
    "determined.common.detignore": _PACKING,
    "determined.common.detlomond": "it is inside of Determined's proxies",
    "determined.common.experimental.oauth2_scim_client": "there is no OAuth here",
    "determined.common.storage.*": _STORAGES,
    "determined.common.streams*": "it is inside of the WebUI's feed",
    "determined.common.v1file_utils": _PACKING,
    "determined.constants": "it names paths in Determined's containers; determined.get_cluster_info() tells of a trial's place",
    "determined.deploy.aws*": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.deploy.gcp*": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.deploy.gke*": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.deploy.errors": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.deploy.healthcheck": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.deploy.local*": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.exec.*": "Determined starts it in its containers; here a job runs the entrypoint itself",
    "determined.gpu": "a trial's devices are in determined.get_cluster_info()",
    "determined.integrations*": "the callback of transformers is determined.transformers.DetCallback",
    "determined.ipc": "workers talk through determined.core.DistributedContext",
    "determined.keras.*": "it belongs to TFKerasTrial, which Determined deprecated: use determined.keras.DeterminedCallback",
    "determined.layers*": _TRIALS,
    "determined.load": _TRIALS,
    "determined.tensorboard.*": _TENSORBOARD,
    "determined.workload": _TRIALS,
}
"""By the module's name, as fnmatch reads it."""


NAMES = {
    "determined": {"EnvContext LegacyTrial TrialController": _CONTROLLERS},
    "determined.common": {"set_logger": "call logging.basicConfig(format=determined.LOG_FORMAT)"},
    "determined.common.api": {
        "NTSC_Kind get_ntsc_details wait_for_ntsc_state wait_for_task_ready": _TASKS,
        "create_group_assignment_request create_user_assignment_request group_name_to_group_id not_found_errs "
        "role_name_to_role_id usernames_to_user_ids": _ROLES,
    },
    "determined.common.api.authentication": {
        "TokenStore check_password_complexity default_load_user_password get_det_password_from_env "
        "get_det_session_token_from_env get_det_user_token_from_env get_det_username_from_env logout logout_all "
        "precanonicalize_v1_url shim_store_v0 shim_store_v1 validate_dict_of_masters validate_one_master_entry "
        "validate_token_store_v0 validate_token_store_v1 validate_token_store_v2 warn_about_complexity": _LOGIN,
    },
    "determined.common.api.certs": {"CertStore default_store maybe_shim_old_cert_store": _CERTIFICATES},
    "determined.common.api.logs": {"levels_at_or_above": "give min_level to trial_logs()"},
    "determined.common.storage": {"normalize_prefix": "a prefix is taken as it is written"},
    "determined.common.util": {"get_max_retries_config": "sessions try again by themselves"},
    "determined.exec.harness": {"maybe_periodic_stacktraces": "py-spy dump shows where a process is"},
    "determined.horovod": {"create_hostlist_arg create_performance_args create_run_command": _LAUNCHERS},
    "determined.keras": {
        "TFKerasTrial TFKerasTrialContext TFKerasTrialController TFKerasTrainConfig": _CALLBACK,
        "TFKerasExperimentalContext": _FIT + "for cached datasets, use determined.keras.DataLayer in a script, with "
        "determined.keras.DeterminedCallback",
        "TFKerasTensorBoard": _FIT + "use determined.keras.TensorBoard beside determined.keras.DeterminedCallback",
        "SequenceAdapter": _FIT + "pass the keras.utils.PyDataset itself to model.fit()",
        "load_model_from_checkpoint_path": _FIT
        + "a checkpoint of determined.keras.DeterminedCallback holds weights: build the "
        "model, then model.load_weights(path + '/model_checkpoint.weights.h5')",
    },
    "determined.keras.callbacks": {
        "Callback": _FIT + "derive from keras.callbacks.Callback, beside determined.keras.DeterminedCallback",
        "EarlyStopping": _KERAS.format("EarlyStopping"),
        "ReduceLROnPlateau": _KERAS.format("ReduceLROnPlateau"),
        "TensorBoard": _FIT + "use determined.keras.TensorBoard beside determined.keras.DeterminedCallback",
    },
    "determined.launch.horovod": {
        "create_hvd_pid_server_cmd create_sshd_worker_cmd create_worker_wrapper_cmd parse_args": _LAUNCHERS
    },
    "determined.launch.tensorflow": {"create_log_wrapper parse_args": _LAUNCHERS},
    "determined.launch.torch_distributed": {
        "create_launch_cmd create_log_redirect_cmd create_pid_client_cmd create_pid_server_cmd parse_args": _LAUNCHERS
    },
    "determined.launch.wrap_rank": {"forward_stream read_newlines_or_carriage_returns run_all": _LAUNCHERS},
    "determined.tensorboard": {
        "AzureTensorboardManager GCSTensorboardManager S3TensorboardManager SharedFSTensorboardManager TensorboardManager "
        "DirectoryTensorboardManager": _TENSORBOARD
    },
    "determined.tensorboard.base": {"PathUploadInfo TensorboardManager": _TENSORBOARD},
    "determined.tensorboard.build": {"build get_rank_if_horovod_process_else_return_zero": _TENSORBOARD},
    "determined.util": {
        "calculate_batch_sizes check_sshd force_create_symlink forward_signals get_member_func humanize_float "
        "is_numerical_scalar json_encode legacy_trial_entrypoint_to_script make_metrics make_timing_log "
        "mask_checkpoint_storage mask_config_dict match_legacy_trial_class rmtree_nfs_safe signal_process_tree "
        "validate_batch_metrics write_user_code": _HARNESS
    },
}
"""By the module that has them in the published package. A stand-in can be imported, and annotate; using it says this."""


class StandIn:
    """Of a name that only the published package has: neither to be called nor to be derived from."""

    _refusal = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        _refuse(self)

    def __init_subclass__(cls, **__: Any) -> None:
        if cls._refusal:
            _refuse(cls)


def _refuse(stand_in: Any) -> NoReturn:
    raise NotImplementedError(stand_in._refusal)


def stand_in(module: str, name: str) -> Any:
    """For a module's ``__getattr__``: the stand-in for a name of ``determined``'s module. Raises AttributeError for any other name.

    ``module``: by its name here or there.
    """
    published = "determined" + module[len("dethpc") :] if module.split(".")[0] == "dethpc" else module
    for names, reason in NAMES.get(published, {}).items():
        if name in names.split():
            placeholder = type(name, (StandIn,), {"__module__": published, "__doc__": f"Not here: {reason}."})
            placeholder._refusal = f"dethpc has no {published}.{name}: {reason} (docs/from-determined.md)"  # type: ignore[attr-defined]
            return placeholder
    if not name.startswith("__") and (instead := _of_module(f"{published}.{name}")):
        raise AttributeError(instead)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def no_module(name: str) -> None:
    """Raises ModuleNotFoundError for a module that only the published package has; says nothing of any other."""
    if reason := _of_module(name):
        raise ModuleNotFoundError(reason, name=name)


def _of_module(name: str) -> str:
    from fnmatch import fnmatchcase

    reason = next((reason for pattern, reason in MODULES.items() if fnmatchcase(name, pattern)), "")
    return reason and f"dethpc has no {name}: {reason} (docs/from-determined.md)"
