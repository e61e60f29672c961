"""What dethpc believes by evidence that somebody else could have put there, what guards against that, and the test that shows it.

A cell's ``guard`` is a place in the code: ``old``, which stands in ``file`` once, and ``new``, which takes the guard out.
``test_matrix.py`` shows that the test fails then. docs/reliability.md and docs/security.md show the table.
"""

from __future__ import annotations

from typing import NamedTuple


class Guard(NamedTuple):
    file: str
    old: str
    new: str


class Cell(NamedTuple):
    evidence: str  # pid, path, port, name, cookie, id, timestamp, PATH, words
    says: str  # what is believed by it
    other: str  # who else could have put it there
    guarded_by: str
    guard: Guard
    test: str
    page: str = "reliability"


CELLS = (
    Cell(
        "pid",
        "the master of this home lives",
        "another process that was given the number of a dead master",
        "the start time of the process beside its number",
        Guard(
            "dethpc/rundir/process.py",
            'return start is not None and start == held.get("pid_started")',
            "return start is not None",
        ),
        "tests/master/durable/test_lease.py::test_a_pid_that_was_given_to_another_process_is_not_taken_for_the_master",
    ),
    Cell(
        "path",
        "`DETHPC_HOME` is this installation",
        "the owner, who copied the folder",
        "the path and the inode in `cluster.json`; a copy is refused",
        Guard(
            "dethpc/rundir/home.py",
            "if not isinstance(place, str) or Path(place) == self.root:",
            "if True:",
        ),
        "tests/master/test_installation.py::test_a_copy_of_a_home_is_refused_while_the_original_is_there",
    ),
    Cell(
        "path",
        "`harness-*.zip` is the code that this release runs on nodes",
        "a disk that lost a bit",
        "CRC-32 of each member, and the digest of the sources in the name",
        Guard("dethpc/master/durable/harness.py", "    elif why := damage(bundle):", '    elif why := "":'),
        "tests/e2e/test_damage_at_rest.py::test_a_bundle_that_was_damaged_is_written_again_by_the_next_master",
    ),
    Cell(
        "path",
        "`contexts/<sha256>.tar.gz` is the code of an experiment",
        "a disk that lost a bit",
        "SHA-256 of the file",
        Guard(
            "dethpc/master/durable/contexts.py",
            "        if not (why := damage(path)):\n            return sha256\n",
            '        if not (why := ""):\n            return sha256\n',
        ),
        "tests/master/durable/test_at_rest.py::test_what_a_run_needs_is_written_again_or_the_run_waits",
    ),
    Cell(
        "id",
        "a listed job is a run's job",
        "Slurm, which lost its state and gives job ids again",
        "the job's name, which carries cluster and run",
        Guard(
            "dethpc/master/watching/job_identity.py",
            "        if not self.carries(record, live.run.id):\n            return False\n",
            "",
        ),
        "tests/master/watching/test_reconcile.py::test_a_job_id_that_was_given_again_is_somebody_elses_job",
    ),
    Cell(
        "port",
        "the server at the address in `master.json` is the owner's master",
        "a program of another user that took the port of a dead master",
        "the server proves that it knows the token (HMAC over nonce, address and machine) before it is sent one",
        Guard(
            "dethpc/client/proof.py",
            "return not answer.will_close and answer.ended and same(expected, given)",
            "return True",
        ),
        "tests/master/http/test_proof.py::test_who_cannot_answer_gets_no_token",
        "security",
    ),
    Cell(
        "name",
        "the job with a run's claim is the one that trains it",
        "a second job of the same run, after an answer of sbatch that was lost",
        "the claim is created once, with the job's id",
        Guard(
            "dethpc/rundir/claim.py",
            "    return claimed_by(run) == str(job_id)\n",
            "    return True\n",
        ),
        "tests/rundir/test_files.py::test_of_many_jobs_one_claims_the_run",
    ),
    Cell(
        "pid",
        "a job of the local scheduler is dead",
        "another machine with the same home, where the number means another process or none",
        "machine id, boot and process namespace beside the table of jobs; each machine has a table of its own",
        Guard(
            "dethpc/scheduler/local/machine.py",
            "        if self.boot == other.boot:\n",
            "        if True:\n            return True\n        if self.boot == other.boot:\n",
        ),
        "tests/scheduler/test_machine.py::test_another_machine_has_a_table_of_its_own",
    ),
    Cell(
        "PATH",
        "there is no Slurm here, so trials run on this machine",
        "a shell of cron or ssh that has not loaded Slurm",
        "the kind and the settings of the last master's scheduler, in `DETHPC_HOME`",
        Guard(
            "dethpc/master/scheduler.py",
            '    if kind != "local" and before.kind == "slurm":\n',
            "    if False:\n",
        ),
        "tests/master/test_scheduler.py::test_a_shell_without_slurm_gets_the_slurm_of_the_master_before",
    ),
    Cell(
        "id",
        "a job that Slurm does not list is over",
        "another cluster, which this shell's SLURM_CONF or SLURM_CLUSTERS names",
        "the identity of the scheduler, kept with each run",
        Guard(
            "dethpc/master/watching/foreign_runs.py",
            "        return live.handed_over and self.of(live) != self.here()\n",
            "        return False\n",
        ),
        "tests/master/watching/test_foreign_runs.py::test_nothing_is_concluded_of_runs_that_another_cluster_has",
    ),
    Cell(
        "id",
        "the next experiment may have this id",
        "a database that is older than the files, from a backup",
        "the database is compared with the files before it is served",
        Guard("dethpc/master/parts.py", "    ids.check(home, store)\n", ""),
        "tests/e2e/test_lost_database.py::test_an_older_copy_of_the_database_is_not_served",
    ),
    Cell(
        "timestamp",
        "the heartbeat in `master.json` is recent, so its master lives",
        "a host that died with its clock ahead",
        "a heartbeat of the future counts only if it goes on",
        Guard(
            "dethpc/master/durable/lease.py",
            "alive(held) and (not _is_ahead(held) or self._beats(held))",
            "alive(held)",
        ),
        "tests/master/durable/test_lease.py::test_a_host_that_died_with_its_clock_ahead_keeps_nobody_out",
    ),
    Cell(
        "name",
        "a folder of the checkpoint storage with a checkpoint's name is that experiment's",
        "another home with the same storage, an archive, a report of a training script",
        "cluster, experiment and trial in the manifest; for what is older, an accepted report of this home",
        Guard(
            "dethpc/storage/ownership.py",
            '        return f"its manifest names {where} ({owner})"\n',
            '        return ""\n',
        ),
        "tests/exec/test_garbage.py::test_what_is_not_the_experiments_stays_and_the_log_says_why",
    ),
    Cell(
        "cookie",
        "a browser that shows it is the one that logged in",
        "a page on another port of a host name that the browser sends it to",
        "a host name of the master's own, drawn for each process, under which alone the cookie counts",
        Guard(
            "dethpc/master/http/page_sessions.py",
            "        if session is None or session.host != host:\n",
            "        if session is None:\n",
        ),
        "tests/web/test_entry.py::test_a_cookie_counts_under_the_name_alone_that_it_was_given_for",
        "security",
    ),
    Cell(
        "name",
        "a folder that a report names is a checkpoint",
        "a training script, with any folder's name",
        "a manifest, or metadata as Determined writes it, and a name that is a uuid",
        Guard(
            "dethpc/storage/ownership.py",
            '        return "it has neither a manifest nor metadata.json, so it is not a checkpoint"\n',
            '        return ""\n',
        ),
        "tests/exec/test_garbage.py::test_what_is_not_the_experiments_stays_and_the_log_says_why",
        "security",
    ),
    Cell(
        "path",
        "`<tmp>/dethpc-staging-<uid>` is this user's",
        "another user of the node, who made it first",
        "owner and mode of the folder; else a folder of a random name",
        Guard(
            "dethpc/storage/staging.py",
            "        return folder if scratch.is_own(str(folder)) else _another(folder)\n",
            "        return folder\n",
        ),
        "tests/storage/test_staging.py::test_what_another_user_planted_is_passed_by_and_the_folder_in_its_place_found_again",
        "security",
    ),
    Cell(
        "words",
        "a line of a trial's log that a log policy's pattern matches is what it warns of",
        "the trial's own configuration, which its code prints",
        "lines that repeat the configuration are passed over",
        Guard(
            "dethpc/exec/supervision/tee.py",
            "if not self._quotations.repeats(line.text, line.rank)]",
            "]",
        ),
        "tests/exec/test_log_policies.py::test_a_policy_does_not_match_where_it_is_printed_and_its_node_is_not_to_blame",
    ),
)


def table(page: str) -> str:
    """As docs/<page>.md shows it, in Markdown."""
    lines = [
        "| evidence | what it is believed to say | who else could have put it there | guard | test |",
        "|---|---|---|---|---|",
    ]
    for cell in CELLS:
        if cell.page == page:
            lines.append(f"| {cell.evidence} | {cell.says} | {cell.other} | {cell.guarded_by} | `{cell.test}` |")
    return "\n".join(lines) + "\n"
