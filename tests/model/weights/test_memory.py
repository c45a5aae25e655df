"""weights/memory.py against machines made of small files, and the arithmetic of a cache."""

import os
from pathlib import Path

import mlx.core as mx
import pytest
from compare import REFERENCE

from model.cache import KVCache
from model.weights import memory
from model.weights.load import load
from model.weights.memory import NotEnoughMemory, available_bytes, check, kv_bytes_per_token

GB = 10**9


def machine(root: Path, **files: str) -> Path:
    """A root directory; keys are paths with __ for / and no dots but those given by _DOT_."""
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


MEMINFO = "MemTotal:       16000000 kB\nMemFree:  500000 kB\nMemAvailable:   8000000 kB\n"


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.cpu))


def test_the_kernels_estimate(tmp_path):
    assert available_bytes(machine(tmp_path, proc__meminfo=MEMINFO)) == 8_192_000_000


def test_nothing_is_known(tmp_path):
    assert available_bytes(tmp_path) is None


def test_this_machine_has_some():
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available_bytes() <= total


def test_a_control_group_of_version_2(tmp_path):
    """Each level may limit; cached file contents count as free."""
    root = machine(
        tmp_path,
        proc__meminfo=MEMINFO,
        proc__self__cgroup="0::/jobs/mine\n",
        sys__fs__cgroup__jobs__memory_DOT_max=f"{4 * GB}\n",
        sys__fs__cgroup__jobs__memory_DOT_current=f"{3 * GB}\n",
        sys__fs__cgroup__jobs__memory_DOT_stat=f"anon {2 * GB}\ninactive_file {GB // 2}\n"
        f"active_file {GB // 4}\n",
        sys__fs__cgroup__jobs__mine__memory_DOT_max="max\n",
        sys__fs__cgroup__jobs__mine__memory_DOT_current=f"{2 * GB}\n",
    )
    assert available_bytes(root) == GB + GB // 2 + GB // 4
    (root / "sys/fs/cgroup/jobs/mine/memory.max").write_text(f"{2 * GB + 7}\n")
    assert available_bytes(root) == 7
    (root / "sys/fs/cgroup/jobs/mine/memory.max").write_text(f"{GB}\n")
    assert available_bytes(root) == 0


def test_a_control_group_of_version_1(tmp_path):
    root = machine(
        tmp_path,
        proc__meminfo=MEMINFO,
        proc__self__cgroup="3:cpu,cpuacct:/x\n2:memory:/mine\n",
        sys__fs__cgroup__memory__mine__memory_DOT_limit_in_bytes=f"{GB}\n",
        sys__fs__cgroup__memory__mine__memory_DOT_usage_in_bytes=f"{GB // 4}\n",
        sys__fs__cgroup__memory__memory_DOT_limit_in_bytes="9223372036854771712\n",
        sys__fs__cgroup__memory__memory_DOT_usage_in_bytes=f"{3 * GB}\n",
    )
    assert available_bytes(root) == GB - GB // 4


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"max_recommended_working_set_size": 12 * GB, "memory_size": 16 * GB}, 12 * GB),
        ({"free_memory": 5 * GB, "total_memory": 80 * GB}, 5 * GB),
        ({"device_name": "x"}, None),
    ],
)
def test_a_gpu(monkeypatch, info, expected):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
    monkeypatch.setattr(mx, "device_info", lambda: info, raising=False)
    assert available_bytes() == expected


def test_a_check_has_the_numbers(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2 * GB)
    check(2 * GB, "the weights")
    with pytest.raises(NotEnoughMemory, match=r"the weights need 2\.50 GB .* 2\.00 GB are avail"):
        check(2 * GB + GB // 2, "the weights")
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    check(10**15, "the weights")


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_a_position_takes_what_the_cache_takes(dtype):
    m = load(REFERENCE / "qwen3-moe", dtype)
    cache = m.make_cache()
    m(mx.zeros((1, 256), mx.int32), cache)
    assert isinstance(cache[0], KVCache)
    held = sum(buffer.nbytes for layer in cache for buffer in layer.state)
    assert held == 256 * kv_bytes_per_token(m.config, dtype)


# --- load ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2)])
def test_load_refuses_what_does_not_fit_before_it_reads(monkeypatch, dtype, size):
    needed = 150_144 * size  # parameters of the checkpoint
    monkeypatch.setattr(memory, "available_bytes", lambda: needed)
    load(REFERENCE / "qwen3-tied", dtype)
    monkeypatch.setattr(memory, "available_bytes", lambda: needed - 1)
    monkeypatch.setattr(mx, "load", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(NotEnoughMemory, match=rf"qwen3-tied as {dtype} need {needed / 1e6:.1f} MB"):
        load(REFERENCE / "qwen3-tied", dtype)


def test_load_may_be_forced(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    m = load(REFERENCE / "qwen3-tied", force=True)
    assert m.config.num_hidden_layers == 3


def test_quantized_weights_count_as_they_are_packed(monkeypatch):
    path = REFERENCE.parent / "quantized" / "llama-mxfp4"
    monkeypatch.setattr(memory, "available_bytes", lambda: 100_000)
    load(path)
    with pytest.raises(NotEnoughMemory):
        load(path, "float32", quantized=False)
