"""Layout of ``DETHPC_HOME``, one user's installation."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Union

from dethpc.rundir import certificate
from dethpc.rundir.files import read_object

if TYPE_CHECKING:
    from dethpc.rundir.archives import Archives
    from dethpc.rundir.layout import RunDir


_one = threading.Lock()


def named_home(env: Optional[Mapping[str, str]] = None) -> Optional[Path]:
    """The folder that ``$DETHPC_HOME`` names, if it names one; in a job, that of the job. It need not exist."""
    environ = os.environ if env is None else env
    named = environ.get("DETHPC_HOME")
    if named:
        return Path(named).expanduser()
    master_file = read_object(environ["DETHPC_INFO"]).get("master_file") if environ.get("DETHPC_INFO") else None
    return Path(master_file).parent if isinstance(master_file, str) else None


def home(env: Optional[Mapping[str, str]] = None) -> Path:
    """The folder of all of a user's state: ``named_home``, else ``~/.dethpc``. It need not exist."""
    return named_home(env) or Path.home() / ".dethpc"


class Home:
    """One folder on shared_fs that holds all of a user's state, so that two installations never meet."""

    def __init__(self, root: Union[Path, str]) -> None:
        self.root = Path(root).expanduser().absolute()
        self._archives: Optional[Archives] = None

    def make(self) -> None:
        """Create the folders, 0700."""
        for folder in (self.root, self.log.parent, self.experiments, self.runs, self.checkpoints):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.root, 0o700)

    @property
    def token(self) -> Path:
        """The owner's key to the master."""
        return self.root / "token"

    @property
    def webhook_key(self) -> Path:
        """``{"signing_key"}``: with which the master signs what webhooks send, unless the site names a key."""
        return self.root / "webhooks.json"

    @property
    def cluster_file(self) -> Path:
        """``{"cluster_id", "home", "inode", "copied_from"}``: what tells this home from others, where it is and which folder that
        is, and of which homes it is a copy that has become one of its own."""
        return self.root / "cluster.json"

    def copied_from(self) -> Optional[Path]:
        """The home that this one is a copy of, while that is still there; None: it is no copy.

        Both have one cluster id, so that a master of each would take the other's jobs for its own.
        """
        cluster = read_object(self.cluster_file)
        place = cluster.get("home")
        if not isinstance(place, str) or Path(place) == self.root:
            return None
        other = Home(place)
        same_id = read_object(other.cluster_file).get("cluster_id") == cluster.get("cluster_id")
        return other.root if same_id and not _same_folder(other, self) else None

    @property
    def originals(self) -> List[Path]:
        """The homes that this one was copied from, the last one first, before it became one of its own."""
        named = read_object(self.cluster_file).get("copied_from")
        return [Path(folder) for folder in named if isinstance(folder, str)] if isinstance(named, list) else []

    def own_master(self) -> dict[str, Any]:
        """What ``master.json`` says; {} when there is none, when it is damaged, and when it came here in a copy of another home."""
        held, own = read_object(self.master_file), read_object(self.cluster_file).get("cluster_id")
        foreign = own is not None and held.get("cluster_id", own) != own
        return {} if foreign or self.copied_from() is not None else held

    @property
    def master_file(self) -> Path:
        """The master's address and lease."""
        return self.root / "master.json"

    @property
    def scheduler_file(self) -> Path:
        """Which scheduler the last master served, and how it was reached: a shell may be set up for none, or for another."""
        return self.root / "scheduler.json"

    @property
    def certificate(self) -> Path:
        """The master's own TLS certificate, in PEM: what other programs than dethpc's need to trust it."""
        return self.root / "master.pem"

    def made_certificate(self, sha256: str) -> bool:
        """Whether the certificate with this SHA-256 is the one that the master made; otherwise it is the site's."""
        try:
            return certificate.sha256(self.certificate.read_text()) == sha256
        except (OSError, ValueError):
            return False

    @property
    def certificate_key(self) -> Path:
        return self.root / "master.key"

    @property
    def database(self) -> Path:
        return self.root / "dethpc.db"

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.database}"

    @property
    def losses(self) -> Path:
        """``{"at", "experiments", "runs"}``: what the last rebuild found files of, but could not recreate."""
        return self.root / "rebuilt.json"

    @property
    def doctor_report(self) -> Path:
        """``{"at", "host", "findings"}``: what ``det doctor`` found last."""
        return self.root / "doctor.json"

    @property
    def log(self) -> Path:
        return self.root / "log" / "master.log"

    @property
    def experiments(self) -> Path:
        return self.root / "experiments"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def arrays(self) -> Path:
        """Job arrays that have not ended, each in a folder of its own: which element is which run."""
        return self.root / "arrays"

    @property
    def copies(self) -> Path:
        """What is being taken in of archives of experiments, each in a folder of its own."""
        return self.root / "copies"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def spool(self) -> Path:
        """Checkpoints that wait for their storage, which was away when their job ended."""
        return self.root / "spool"

    def run(self, run_id: str) -> RunDir:
        """The directory of a run that is not over. What an ended one has left is read through ``find``."""
        from dethpc.rundir.layout import RunDir  # here: the CLI finds its master through this module

        return RunDir(self.runs / run_id)

    @property
    def archives(self) -> Archives:
        if self._archives is None:
            from dethpc.rundir.archives import Archives

            with _one:
                self._archives = self._archives or Archives(self.runs)
        return self._archives

    def find(self, run_id: str) -> RunDir:
        """Where to read what a run has written: its directory, or the archive that its trial is folded into."""
        from dethpc.rundir.layout import RunDir

        archive = self.archives.of(run_id)
        return self.run(run_id) if archive is None else RunDir(archive / run_id)

    def experiment(self, experiment_id: int) -> Path:
        return self.experiments / str(experiment_id)

    def venv(self, experiment_id: int) -> Path:
        """The Python environment of an experiment that has one of its own."""
        return self.experiment(experiment_id) / "venv"

    def trials(self, experiment_id: int) -> Path:
        """What the experiment's trials keep over their attempts, each in the folder that its id names."""
        return self.experiment(experiment_id) / "trials"

    def task(self, task_id: str) -> Path:
        """What a notebook keeps over its attempts, and after its end."""
        return self.root / "tasks" / task_id

    def search(self, experiment_id: int) -> Path:
        """How a large search stood when it ended, kept by releases before this one. It goes with the experiment."""
        return self.experiment(experiment_id) / "search.json"

    @property
    def contexts(self) -> Path:
        return self.root / "contexts"

    def context(self, sha256: str) -> Path:
        """Contexts are named by their content: experiments that share code share the file."""
        return self.contexts / f"{sha256}.tar.gz"

    def context_of_files(self, digest: str) -> Path:
        """A link to the context that was made of files with this digest."""
        return self.contexts / "by-files" / digest

    @property
    def environments(self) -> Path:
        return self.root / "environments"

    def environment(self, queue_id: str) -> Path:
        """The variables that the jobs of the experiment with this uuid run with."""
        return self.environments / queue_id

    @property
    def node_changes(self) -> Path:
        """What was held against nodes, one committed row a line."""
        return self.root / "nodes.jsonl"

    def announced(self, master: str) -> Path:
        """Ids of the experiments whose files of changes this master was about to write last, one a line. Each has a file of its
        own, which no other writes to: one that was frozen may be thawed at any time."""
        return self.root / f"changing.{master}"

    def all_announced(self) -> list[Path]:
        """Those of all masters that left one, also of an early release, whose masters shared one."""
        return sorted(self.root.glob("changing*"))

    @property
    def records(self) -> Path:
        """Users, tokens and whatever else no decision reads, one committed row a line."""
        return self.root / "records.jsonl"

    @property
    def task_changes(self) -> Path:
        """The master's decisions about tasks that belong to no experiment, one committed row a line."""
        return self.root / "tasks.jsonl"

    def changes(self, experiment_id: int) -> Path:
        """The master's decisions about an experiment, one committed row a line."""
        return self.experiment(experiment_id) / "changes.jsonl"


def _same_folder(one: Home, other: Home) -> bool:
    """Whether both are one folder, perhaps seen through two mounts, which have devices of their own."""
    try:
        return _numbers(one) == _numbers(other)
    except OSError:
        return True


def _numbers(home: Home) -> tuple[int, int, int]:
    file = home.cluster_file.stat()  # a backup may share it by a hard link, but not the folder
    return home.root.stat().st_ino, file.st_ino, int(file.st_ctime)
