"""how busy this machine is -> how many threads a BLAS library uses.

Blind spot: when to look; who generates calls `adapt` before each step.
"""

import os
import time
from pathlib import Path

from model.cpu.libraries import Library

_FIXED_BY = {  # kind of library -> the environment variables by which users set its threads
    "openblas": ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"),
    "mkl": ("MKL_NUM_THREADS", "OMP_NUM_THREADS"),
}
_SECONDS_BETWEEN_LOOKS = 0.25
_SECONDS_OF_FIRST_LOOK = 0.06  # the kernel counts in hundredths
_MOST_OF_A_CORE = 0.75  # what must be free of a core to put a thread there


class Pace:
    """How many threads: as many as there are cores that other processes leave free."""

    def __init__(self, library: Library) -> None:
        self._set_num_threads = library.set_num_threads
        self._get_num_threads = library.get_num_threads
        self._fixed = any(os.environ.get(name) for name in _FIXED_BY[library.name])
        self._cores, self._most = physical_cores(), num_cores()
        self._looked = (time.monotonic(), busy_seconds())
        if not self._fixed:
            time.sleep(_SECONDS_OF_FIRST_LOOK)

    def is_due(self) -> bool:
        return not self._fixed and time.monotonic() - self._looked[0] >= _SECONDS_BETWEEN_LOOKS

    def fix(self, num_threads: int) -> int:
        """Keep to so many threads from now on."""
        self._fixed = True
        self._set_num_threads(num_threads)
        return self._get_num_threads()

    def adapt(self) -> int:
        """Look, set the number of threads, return it. What the user's environment fixes stays."""
        if not self._fixed:
            before, self._looked = self._looked, (time.monotonic(), busy_seconds())
            seconds, busy = (now - then for now, then in zip(self._looked, before))
            free = int(self._cores - max(0.0, busy) / seconds + 1 - _MOST_OF_A_CORE)
            self._set_num_threads(max(1, min(free, self._most)))
        return self._get_num_threads()


def busy_seconds() -> float:
    """Processor time that others have used, of the cores this process may use, since the start."""
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for line in _read("/proc/stat").splitlines():
        cpu, *counts = line.split()
        if cpu in mine:  # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user
            user, nice, system, _, _, *interrupts_and_steal = map(int, counts[:8])
            ticks += user + nice + system + sum(interrupts_and_steal)
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def num_cores() -> int:
    """The most threads that are of use: physical cores, within the container's limit."""
    return max(1, int(min(physical_cores(), _container_limit())))


def physical_cores() -> int:
    """Those on which this process may run. Two processors of one core count once."""
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return len({_read(siblings.format(cpu)) or cpu for cpu in os.sched_getaffinity(0)})


def _container_limit() -> float:
    """Cores' worth of time that the control group, version 2 or 1, grants."""
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
    if not period:
        quota = _read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _read("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit():  # unlimited is "max" or -1
        return int(quota) / int(period)
    return float("inf")


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
