"""This machine -> how many bytes a model may still take here; a config -> what a context needs.

Blind spot: it knows what is free now, not what other programs will want, and nothing of the
activations of a forward pass, which are small beside weights and cache.

Sources: proc_meminfo(5) (MemAvailable); the kernel's cgroup-v2.rst and cgroup-v1/memory.rst.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx

from model.config import Config


class NotEnoughMemory(RuntimeError):
    """What was asked for is larger than the memory that is available."""


def check(needed: int, what: str) -> None:
    """Raises NotEnoughMemory, with the numbers, if so many bytes are not available."""
    available = available_bytes()
    if available is not None and needed > available:
        raise NotEnoughMemory(
            f"{what} need {gigabytes(needed)} of memory, and {gigabytes(available)} are available;"
            " take a shorter dtype or a quantized model, or force=True (--force) to try it anyway"
        )


def kv_bytes_per_token(config: Config, dtype: mx.Dtype) -> int:
    """Keys and values of one position in all layers."""
    values = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return values * dtype.size


def gigabytes(num_bytes: float) -> str:
    """
    >>> gigabytes(1_234_567_890), gigabytes(1_234_567)
    ('1.23 GB', '1.2 MB')
    """
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.1f} MB"


def available_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that can be allocated without swapping, where the weights go; None if unknown.

    On a GPU, what its driver recommends or has free. On Linux, the kernel's estimate and every
    limit of the process's control groups, whichever is least. root: where /proc and /sys are.
    """
    if mx.default_device().type != mx.DeviceType.cpu:
        return _gpu_bytes()
    linux = [*_meminfo(root), *_cgroup_rooms(root)]
    if linux:
        return min(linux)
    if "SC_PHYS_PAGES" in os.sysconf_names and root == Path("/"):  # macOS: all there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _gpu_bytes() -> int | None:
    if hasattr(mx, "device_info"):
        info = mx.device_info()
    else:  # MLX before version 0.30
        info = mx.metal.device_info() if mx.metal.is_available() else {}
    for key in ("max_recommended_working_set_size", "free_memory", "total_memory", "memory_size"):
        if key in info:
            return int(info[key])
    return None


def _meminfo(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def _cgroup_rooms(root: Path) -> Iterator[int]:
    """What each control group that the process is in leaves: its limit less what it uses, but for
    file contents in memory, which the kernel drops when it must."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
            caches = ("inactive_file", "active_file")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            caches = ("total_inactive_file", "total_active_file")
        else:
            continue
        group = mount / path.strip().lstrip("/")
        for each in (group, *group.parents):
            if each.is_relative_to(mount):
                yield from _room(each, *names, caches)


def _room(group: Path, limit: str, usage: str, caches: tuple[str, str]) -> Iterator[int]:
    limits, used = _lines(group / limit), _lines(group / usage)
    if not limits or not used or not limits[0].strip().isdigit():  # "max": no limit
        return
    stat = dict(line.split()[:2] for line in _lines(group / "memory.stat"))
    cached = sum(int(stat.get(name, 0)) for name in caches)
    yield max(0, int(limits[0]) - int(used[0]) + cached)


def _lines(file: Path) -> list[str]:
    """A file of the kernel's; one that isn't there says nothing."""
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
