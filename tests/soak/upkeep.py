"""Maintenance in a loop: the procedures in any order, with the options that change how they commit."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

from iceberg_compact_sql.errors import IcebergCompactError
from tests.soak.lake import NAME, open_soak
from tests.support.calls import call

COMPACT = f"CALL compact_table('{NAME}', min_input_files => 2, delete_file_threshold => 1"
STATEMENTS = (
    f"{COMPACT})",
    f"{COMPACT}, rewrite_all => true)",
    f"{COMPACT}, partial_progress => true, max_commits => 2)",
    f"{COMPACT}, where => 'part = 1')",
    f"{COMPACT}, remove_dangling_deletes => false, verify => 'rows')",
    f"{COMPACT}, sort_order => 'value DESC, id', max_depth => 1)",
    f"{COMPACT}, sort_order => 'hilbert(id, value)', rewrite_all => true)",
    f"CALL rewrite_position_deletes('{NAME}', options => map('min-input-files', '2'))",
    f"CALL rewrite_manifests('{NAME}')",
    f"CALL maintain_table('{NAME}', steps => array('compact', 'manifests'), min_input_files => 2)",
    f"CALL expire_snapshots('{NAME}', older_than => TIMESTAMP '2099-01-01', retain_last => 3)",
)


def keep_up(folder: Path, seed: int, until: float) -> None:
    """Call one procedure after the other; what each came to is counted in a file of this process."""
    lake = open_soak(folder)
    chosen = random.Random(seed)
    counts: Counter[str] = Counter()
    while time.time() < until:
        statement = chosen.choice(STATEMENTS)
        name = statement.split("(")[0].removeprefix("CALL ")
        try:
            rows = call(lake, statement)
            counts[f"{name}: {'changed' if any(map(_changed, rows)) else 'nothing to do'}"] += 1
        except IcebergCompactError as error:
            # A concurrent change won, or a file was expired by the other maintainer while it was read.
            counts[f"{name}: {type(error).__name__}"] += 1
            with (folder / "refusals.txt").open("a") as file:
                file.write(f"{error}\n")
        (folder / f"upkeep-{os.getpid()}.counts").write_text(repr(dict(counts)))
        time.sleep(chosen.uniform(0, 0.2))


def _changed(row: dict[str, object]) -> bool:
    return bool(row.get("snapshot_id") or row.get("expired_snapshots_count") or row.get("outcome") == "done")
