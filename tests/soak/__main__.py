"""Writers and maintenance on one table in processes that are killed at random: `python -m tests.soak --seconds 600`.

Every row that a writer was told to be in the table must be there once, with its last value, and no other row.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import random
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from tests.soak.journal import Journal
from tests.soak.lake import NAME, open_soak, rows_of
from tests.soak.upkeep import keep_up
from tests.soak.writing import Writer
from tests.support.calls import call
from tests.support.oracle import assert_readable, entries, plain

WRITERS = 2
MAINTAINERS = 2
_TEN_DAYS_MS = 10 * 86_400_000


def work(role: str, number: int, folder: str, seed: int, until: float) -> None:
    """What a process does until its time is over or it is killed."""
    home = Path(folder)
    try:
        if role == "writer":
            Writer(home, number, seed).run(until)
        else:
            keep_up(home, seed, until)
    except BaseException:
        (home / f"violation-{role}-{number}-{os.getpid()}.txt").write_text(traceback.format_exc())
        raise SystemExit(1) from None


def soak(folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Run it; a summary of what happened. Raises AssertionError at the first violation."""
    open_soak(folder, create=True).catalog.close()
    dice = random.Random(seed)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.soak.__main__"])
    until = time.time() + seconds
    roles = [("writer", n) for n in range(WRITERS)] + [("maintainer", n) for n in range(MAINTAINERS)]

    def start(role: tuple[str, int]) -> Any:
        process = context.Process(target=work, args=(*role, str(folder), dice.randrange(2**31), until), daemon=True)
        process.start()
        return process

    running = {role: start(role) for role in roles}
    kills = 0
    try:
        while time.time() < until:
            time.sleep(dice.uniform(0.3, 1.5))
            _check_violations(folder)
            victim = dice.choice(roles)
            running[victim].kill()
            running[victim].join()
            kills += 1
            running[victim] = start(victim)
        for process in running.values():
            process.join(60)
    finally:
        for process in running.values():
            process.kill()
            process.join()
    _check_violations(folder)
    return {"seed": seed, "kills": kills, **_final_check(folder)}


def _check_violations(folder: Path) -> None:
    for report in folder.glob("violation-*.txt"):
        raise AssertionError(f"{report.name}:\n{report.read_text()}")


def _final_check(folder: Path) -> dict[str, Any]:
    """All rows of all writers, before and after a last maintenance, and nothing left on disk that nobody names."""
    lake = open_soak(folder)
    journals = {number: Journal(folder / f"writer-{number}.journal") for number in range(WRITERS)}
    _check_rows(lake.load(NAME), journals)
    call(lake, f"CALL compact_table('{NAME}', min_input_files => 2, delete_file_threshold => 1)")
    call(lake, f"CALL expire_snapshots('{NAME}', older_than => TIMESTAMP '2099-01-01', retain_last => 1)")
    call(lake, f"CALL remove_orphans('{NAME}', force => true)", now_ms=int(time.time() * 1000) + _TEN_DAYS_MS)
    table = lake.load(NAME)
    _check_rows(table, journals)
    assert_readable(table)
    live = {plain(entry["data_file"]["file_path"]) for entry in entries(table)}
    left = {str(path) for path in (folder / "warehouse").rglob("*.parquet")}
    assert left == live, f"files that nobody names: {sorted(left - live)}"
    counts: Counter[str] = Counter()
    for file in folder.glob("upkeep-*.counts"):
        counts.update(ast.literal_eval(file.read_text() or "{}"))
    lake.catalog.close()
    return {"steps": sum(journal.landed for journal in journals.values()), "maintenance": dict(sorted(counts.items()))}


def _check_rows(table: Any, journals: dict[int, Journal]) -> None:
    for number, journal in journals.items():
        found = rows_of(table, number)
        allowed = [journal.state, journal.pending.applied_to(journal.state)] if journal.pending else [journal.state]
        if found not in [sorted(state.items()) for state in allowed]:
            raise AssertionError(f"writer {number} has {found}, expected one of {allowed}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--folder", type=Path, help="kept afterwards; without it a temporary one")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(soak(folder, given.seconds, given.seed), flush=True)


if __name__ == "__main__":
    # The class names that processes share are those of the module, not of a script.
    from tests.soak.__main__ import main as main_of_the_module

    main_of_the_module()
