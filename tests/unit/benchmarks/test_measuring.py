"""The measure of the benchmarks: bytes and CPU of processes that come and go are counted once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.benchmarks.measuring import measure

WRITING = "import time; open('/dev/null', 'wb').write(bytearray(64 * 2**20))"
CHILD = f"{WRITING}; print('written', flush=True); time.sleep(0.3)"


def test_a_child_is_counted_once_and_what_it_did_before_not_at_all() -> None:
    cost, code = measure("c", "s", lambda: subprocess.run([sys.executable, "-c", CHILD], check=True).returncode)
    assert code == 0
    assert cost.written_mb == pytest.approx(64, abs=2)
    assert cost.wall_s > 0.3 and cost.cpu_s > 0 and cost.peak_mb > 0
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True) as earlier:
        assert earlier.stdout is not None
        assert earlier.stdout.readline() == "written\n"
        cost, _ = measure("c", "s", lambda: earlier.wait(30))
    assert cost.written_mb == pytest.approx(0, abs=2)
