"""cpu/threads.py: as many threads as others leave cores free, on machines of every kind."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from linux_cpu import on_linux

from model.cpu import threads


@pytest.mark.parametrize(
    ("others", "expected"),
    [(0, 4), (1.9, 4), (2.2, 4), (2.3, 3), (3.1, 3), (4, 2), (5.9, 1), (9, 1), (-0.1, 4)],
)
def test_threads_leave_cores_to_others(monkeypatch, others, expected):
    now, count = [100.0], []
    monkeypatch.setattr(
        threads, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: None)
    )
    monkeypatch.setattr(threads, "busy_seconds", lambda: others * now[0])
    monkeypatch.setattr(threads, "physical_cores", lambda: 6)
    monkeypatch.setattr(threads, "num_cores", lambda: 4)
    for name in threads._FIXED_BY["openblas"]:
        monkeypatch.delenv(name, raising=False)
    library = SimpleNamespace(
        name="openblas", set_num_threads=count.append, get_num_threads=lambda: count[-1]
    )
    pace = threads.Pace(library)
    assert not pace.is_due()
    now[0] += 0.3
    assert pace.is_due()
    assert pace.adapt() == expected
    assert not pace.is_due()


@on_linux
def test_others_are_seen_and_this_process_is_not(monkeypatch):
    monkeypatch.setattr(threads.time, "process_time", lambda: 0.0)
    before = threads.busy_seconds()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            busy.wait(0.5)
        after = threads.busy_seconds()
        assert after - before > 0.1
        monkeypatch.setattr(threads.time, "process_time", lambda: 1e6)
        assert threads.busy_seconds() == pytest.approx(after - 1e6, abs=1)
    finally:
        busy.kill()
        busy.wait()


@on_linux
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 4),
        ({"cpu.max": "max 100000"}, 4),
        ({"cpu.max": "250000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu0/topology": "0,4", "cpu1/topology": "1,5"}, 4),
        ({"cpu0/topology": "0-1", "cpu1/topology": "0-1"}, 3),
    ],
)
def test_cores(monkeypatch, files, expected):
    def read(path):
        ends = [text for name, text in files.items() if name in path]
        return ends[0] if ends else ""

    monkeypatch.setattr(threads, "_read", read)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert threads.num_cores() == expected
