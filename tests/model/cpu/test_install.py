"""cpu/install.py: MLX's products after enable() against the textbook's loops, and every refusal.

A process is patched once, so what needs an unpatched one runs in a process of its own.
"""

import ctypes
import importlib.util
import mmap
import os
import platform
import random
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import pytest
from compare import assert_close
from paths import ROOT

from model.cpu import install

ON_CPU = sys.platform == "linux" and mx.default_device().type == mx.cpu
HAS_LIBRARY = importlib.util.find_spec("scipy_openblas32") is not None

on_linux = pytest.mark.skipif(not ON_CPU, reason="only MLX on a Linux CPU is ever patched")
with_library = pytest.mark.skipif(
    not (ON_CPU and HAS_LIBRARY), reason="needs MLX on a Linux CPU and scipy-openblas32"
)
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the shim is for x86-64")


@pytest.fixture(scope="module")
def report():
    return install.enable()


def run(script: str, **environment: str) -> list[str]:
    """The lines that a script prints in an interpreter of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    kept.pop(install.SWITCH, None)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# --- products ------------------------------------------------------------------------------------


def textbook(a: list, b: list) -> list:
    """rows times columns, one multiplication at a time"""
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def numbers(*shape: int, seed: int = 0) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed))


SIZES = [  # M, K, N; no size twice in a row, so a swapped one can't pass
    (1, 1, 1),
    (1, 5, 3),
    (1, 300, 129),
    (3, 1, 2),
    (7, 129, 1),
    (2, 64, 33),
    (17, 31, 40),
    (65, 40, 70),
]


@pytest.mark.parametrize(("M", "K", "N"), SIZES)
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
def test_products(report, M, K, N, transposed):
    a = numbers(K, M, seed=1).T if "a" in transposed else numbers(M, K, seed=1)
    b = numbers(N, K, seed=2).T if "b" in transposed else numbers(K, N, seed=2)
    assert_close(a @ b, textbook(a.tolist(), b.tolist()), atol=1e-4)


@pytest.mark.parametrize("M", [1, 4])
def test_products_of_views_with_gaps(report, M):
    a, b = numbers(2 * M, 30, seed=1)[::2, 3:24:3], numbers(9, 40, seed=2)[1:8, 5:38:2]
    assert_close(a @ b, textbook(a.tolist(), b.tolist()), atol=1e-5)
    assert_close(a @ b[:, 2:7], textbook(a.tolist(), b[:, 2:7].tolist()), atol=1e-5)


@pytest.mark.parametrize("M", [1, 4])
def test_products_in_batches(report, M):
    a, b = numbers(2, 3, M, 5, seed=1), numbers(3, 7, 5, seed=2).swapaxes(1, 2)
    expected = [[textbook(x, y) for x, y in zip(xs, b.tolist())] for xs in a.tolist()]
    assert_close(a @ b, expected, atol=1e-5)


@pytest.mark.parametrize(("M", "K", "N"), [(0, 3, 2), (1, 0, 3), (4, 0, 3), (2, 3, 0)])
def test_products_of_nothing(report, M, K, N):
    result = mx.zeros((M, K)) @ mx.zeros((K, N))
    assert result.shape == (M, N)
    assert result.tolist() == [[0.0] * N for _ in range(M)]


@pytest.mark.parametrize("M", [1, 6])
@pytest.mark.parametrize("dtype", [mx.float64, mx.complex64, mx.float16, mx.bfloat16])
def test_products_in_other_types(report, M, dtype):
    with mx.stream(mx.cpu):
        whole = (mx.arange(M * 9) % 7 - 3).reshape(M, 9), (mx.arange(45) % 5 - 2).reshape(9, 5)
        a, b = (matrix.astype(dtype) for matrix in whole)
        expected = textbook(*(matrix.tolist() for matrix in whole))
        assert (a @ b).astype(mx.complex64).tolist() == expected


@pytest.mark.parametrize("M", [1, 3])
def test_sum_and_product_in_one(report, M):
    a, b, c = numbers(M, 8, seed=1), numbers(8, 6, seed=2), numbers(M, 6, seed=3)
    expected = 2 * mx.array(textbook(a.tolist(), b.tolist())) + 3 * c
    assert_close(mx.addmm(c, a, b, alpha=2, beta=3), expected, atol=1e-5)


def test_result_ignores_what_its_memory_held(report):
    for _ in range(20):
        mx.eval(mx.full((1, 700), mx.nan))  # freed at once, and next in line to be used again
        assert (mx.ones((1, 3)) @ mx.ones((3, 700))).tolist() == [[3.0] * 700]


def test_lapack_is_untouched(report):
    a = numbers(9, 9, seed=1) + 5 * mx.eye(9)
    inverse = mx.linalg.inv(a, stream=mx.cpu)
    assert_close(mx.array(textbook(a.tolist(), inverse.tolist())), mx.eye(9).tolist(), atol=1e-4)


# --- the shim ------------------------------------------------------------------------------------


def at(matrix: list, is_transposed: bool, row: int, column: int, ld: int, order: int) -> float:
    if is_transposed:
        row, column = column, row
    return matrix[row * ld + column if order == 101 else column * ld + row]


@with_library
@on_x86
@pytest.mark.parametrize("order", [101, 102])  # by rows, by columns
@pytest.mark.parametrize("transposes", list(product([111, 112], repeat=2)))
@pytest.mark.parametrize(("M", "N", "K"), [(1, 5, 3), (1, 3, 0), (1, 1, 4), (2, 5, 3), (0, 2, 3)])
@pytest.mark.parametrize("alpha_beta", [(1, 0), (2, 3)])
def test_shim_is_gemm(order, transposes, M, N, K, alpha_beta):
    (path, *_), chance = install._candidates("openblas"), random.Random(M * N + K)
    library = install.Library.open(path)
    shims, (alpha, beta) = install._row_shims(library), alpha_beta
    if not shims:
        pytest.skip("this system lets no page run that was written to")
    a, b, c = ([chance.randrange(-4, 5) for _ in range(100)] for _ in "abc")
    ld_a, ld_b, ld_c = 6, 7, 8  # at least each size, so rows have gaps
    expected = list(c)
    for i, j in product(range(M), range(N)):
        place = i * ld_c + j if order == 101 else j * ld_c + i
        terms = (
            at(a, transposes[0] == 112, i, k, ld_a, order)
            * at(b, transposes[1] == 112, k, j, ld_b, order)
            for k in range(K)
        )
        expected[place] = alpha * sum(terms) + beta * c[place]
    size, pointer = ctypes.c_int, ctypes.c_void_p
    for name, number in (("cblas_sgemm", ctypes.c_float), ("cblas_dgemm", ctypes.c_double)):
        arrays = [(number * 100)(*values) for values in (a, b, c)]
        start = [ctypes.addressof(array) for array in arrays]
        call = ctypes.CFUNCTYPE(
            None, *[size] * 6, number, pointer, size, pointer, size, number, pointer, size
        )(shims[name])
        call(
            *(order, *transposes, M, N, K),
            *(alpha, start[0], ld_a, start[1], ld_b, beta, start[2], ld_c),
        )
        assert list(arrays[2]) == expected, name


# --- what is reported ----------------------------------------------------------------------------


@with_library
def test_report_is_true(report):
    if os.environ.get(install.SWITCH):
        pytest.skip(f"{install.SWITCH} is set")
    assert report.name == "openblas"
    assert report.path in {mapping.path for mapping in install.Mapping.all()}
    handle = ctypes.CDLL(report.path)
    config = ctypes.CFUNCTYPE(ctypes.c_char_p)(("scipy_openblas_get_config", handle))()
    assert report.version.split()[0] in config.decode()
    assert install.enable().num_threads == handle.scipy_openblas_get_num_threads()
    places = install.Slots.of(str(libmlx()), install.import_slots).places()
    functions = [ctypes.c_uint64.from_address(place).value for place in places]
    files = {install._file_at(function) for function in functions}
    assert files <= {report.path, ""}  # "": the shim


def test_enable_twice(report):
    assert replace(install.enable(), num_threads=report.num_threads) == report


@with_library
@pytest.mark.parametrize(
    "script",
    [
        "from model import cpu; first = cpu.enable(); import mlx.core as mx",
        "import mlx.core as mx; mx.eval(mx.ones((3, 4)) @ mx.ones((4, 5)));"
        "from model import cpu; first = cpu.enable()",
    ],
    ids=["before MLX", "after its first product"],
)
def test_order_of_imports_does_not_matter(script):
    script += "; assert cpu.enable() is first; print(first.name, (mx.ones((2, 3)) @ mx.ones(3)))"
    assert run(script) == ["openblas array([3, 3], dtype=float32)"]


@with_library
@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("rows", [1, 200])
def test_a_process_may_end_while_products_run(rows, threads):
    script = f"""
import mlx.core as mx
from model.cpu import install
install.enable()
x, weight = mx.ones(({rows}, 2000)), mx.ones((2000, 2000))
for _ in range(100 // {rows} + 20):
    x = x @ weight
    mx.async_eval(x)
print("running")
"""
    assert run(script, OPENBLAS_NUM_THREADS=threads) == ["running"]


@with_library
def test_a_process_may_fork_while_products_run():
    """A child has none of MLX's threads, but a thread of its own may compute."""
    script = """
import os, threading
import mlx.core as mx
from model.cpu import install
install.enable()
x, weight = mx.ones((100, 800)), mx.ones((800, 800))
def compute():
    with mx.stream(mx.new_stream(mx.cpu)):
        print((x @ weight)[-1, -1].item(), install.adapt(), flush=True)
for _ in range(8):
    results = [x @ weight for _ in range(4)] + [x[:1] @ weight for _ in range(4)]
    mx.async_eval(results)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert all((result == 800).all().item() for result in results)
if os.fork() == 0:
    install._pace._looked = (0, 0)
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    os._exit(0)
os.wait()
"""
    assert run(script, OPENBLAS_NUM_THREADS="2") == ["800.0 1"]


@with_library
def test_threads_that_the_user_fixed_stay():
    script = """
from model.cpu import install
report = install.enable()
install._pace._cores = install._pace._most = 64
install._pace._looked = (0, 0)
print(report.num_threads, install.adapt(), install.enable().num_threads)
"""
    assert run(script, OPENBLAS_NUM_THREADS="1") == ["1 1 1"]


# --- refusals: MLX stays as it was ---------------------------------------------------------------

REFUSAL = """
from model.cpu import install
import mlx.core as mx
report = install.enable()
print(report.name, report.path, report.num_threads, install.adapt())
print(report.reason)
print((mx.ones((2, 3)) @ mx.ones((3, 1))).tolist())
own = {m.path for m in install.Mapping.all() if "blas" in m.path.rpartition("/")[2]}
print(len(own), str(report))
"""


def libmlx() -> Path:
    mx.eval(mx.ones(1))
    return Path(next(m.path for m in install.Mapping.all() if m.path.endswith("/libmlx.so")))


@on_linux
@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ("off", "switched off"),
        ("OFF", "switched off"),
        ("fastest", "is none of off, openblas"),
        ("/nowhere/libopenblas.so", "cannot open shared object file"),
        (__file__, "invalid ELF header"),
        ("libmlx", "neither OpenBLAS nor MKL"),
    ],
)
def test_refused(choice, reason):
    choice = str(libmlx()) if choice == "libmlx" else choice
    named, why, products, last = run(REFUSAL, BYTEPAIR_BLAS=choice)
    assert named == "None None 0 0"
    assert reason in why
    assert products == "[[3.0], [3.0]]"
    assert last.endswith(f"MLX's own ({why})")


@on_linux
def test_no_library_anywhere():
    hide = """
import importlib.util
importlib.util.find_spec = lambda name: None
from model.cpu import install
install._files_of = lambda package, prefix: ()
def missing(path):
    raise OSError(f"{path}: cannot open shared object file")
install.Library.open = missing
"""
    named, why, products, _ = run(hide + REFUSAL)
    assert named == "None None 0 0"
    assert why.startswith("scipy-openblas32 or another fast BLAS is needed: libopenblas.so.0")
    assert products == "[[3.0], [3.0]]"


@with_library
@pytest.mark.parametrize("trusted", ["", "install._multiplies = lambda function: True"])
def test_wrong_products_are_undone(trusted):
    """A library whose functions do nothing is found out, and the slots get back what they held."""
    script = f"""
import ctypes
from dataclasses import replace
import mlx.core as mx
from model.cpu import install
slots = install.Slots.of_libmlx()
held = [install._word(place) for place in slots.places()]
nothing = install._address(ctypes.CDLL(None).getpid)
real = install.Library.open
def broken(path):
    library = real(path)
    return replace(library, name="mkl", functions=dict.fromkeys(library.functions, nothing))
install.Library.open = broken
{trusted}
print(install.enable().name, "wrong products" in install.enable().reason)
print(held == [install._word(place) for place in slots.places()])
print((mx.ones((2, 3)) @ mx.ones((3, 1))).tolist())
"""
    assert run(script) == ["None True", "True", "[[3.0], [3.0]]"]


@with_library
@pytest.mark.parametrize("before", [None, "20"])
def test_environment_is_put_back(monkeypatch, before):
    monkeypatch.delenv(install._SPIN, raising=False)
    if before:
        monkeypatch.setenv(install._SPIN, before)
    install.Library.open(next(install._candidates("openblas")))
    assert os.environ.get(install._SPIN) == before


@with_library
def test_a_library_without_a_function(monkeypatch):
    monkeypatch.setattr(install, "FUNCTIONS", (*install.FUNCTIONS, "cblas_qgemm"))
    with pytest.raises(ValueError, match="has no scipy_cblas_qgemm"):
        install.Library.open(next(install._candidates("openblas")))


@on_linux
def test_someone_elses_blas_is_left_alone():
    script = """
import ctypes
from model.cpu import install
slots = install.Slots.of_libmlx()
slots.write(dict.fromkeys(slots.addresses, install._address(ctypes.CDLL(None).getpid)))
print(install.enable().reason.startswith("MLX already uses /"), install.enable().name)
"""
    assert run("import mlx.core\n" + script) == ["True None"]


@pytest.mark.parametrize(
    ("system", "machine", "reason"),
    [("darwin", "arm64", "darwin"), ("win32", "AMD64", "win32"), ("linux", "riscv64", "riscv64")],
)
def test_other_systems(monkeypatch, system, machine, reason):
    monkeypatch.setattr(install.sys, "platform", system)
    monkeypatch.setattr(install.platform, "machine", lambda: machine)
    with pytest.raises(ValueError, match=reason):
        install._enable("auto")


@on_linux
def test_other_devices(monkeypatch):
    monkeypatch.setattr(mx, "default_device", lambda: SimpleNamespace(type=mx.gpu))
    with pytest.raises(ValueError, match="MLX computes on"):
        install._enable("auto")


def test_width_of_whole_numbers():
    """Stand-ins for cblas_sdot that read their length as 32 and as 64 bits."""
    for size, is_right in ((ctypes.c_int32, True), (ctypes.c_int64, False)):

        def dot(n, x, incx, y, incy):
            return sum(x[i] * y[i] for i in range(n))  # nothing for a negative n

        array = ctypes.POINTER(ctypes.c_float)
        function = ctypes.CFUNCTYPE(ctypes.c_float, size, array, size, array, size)(dot)
        assert install._takes_32_bits(install._address(function)) is is_right


# --- ELF -----------------------------------------------------------------------------------------


@on_linux
def test_damaged_elf_is_refused():
    """Cut anywhere, or with bytes changed in its tables: slots or ValueError, nothing else."""
    whole = libmlx().read_bytes()
    slots, chance = install.import_slots(whole, platform.machine()), random.Random(0)
    assert set(slots) <= set(install.FUNCTIONS)
    with pytest.raises(ValueError, match="not a 64-bit ELF"):
        install.import_slots(b"", platform.machine())
    with pytest.raises(ValueError, match="for this machine"):
        install.import_slots(whole, "aarch64" if platform.machine() == "x86_64" else "x86_64")
    for size in (15, 40, 63, 500, len(whole) // 2):
        with pytest.raises(ValueError, match=r"ELF|imported"):
            install.import_slots(whole[:size], platform.machine())
    far = whole[:32] + b"\xff" * 8 + whole[40:]  # the program headers' place
    with pytest.raises(ValueError, match="outside the file"):
        install.import_slots(far, platform.machine())
    damaged, dynamic = bytearray(whole), install._segments(whole)[2][0][1]
    refused = 0
    for _ in range(150):
        start = chance.choice([0, 32, 64, 64, dynamic, dynamic])
        places = [start + chance.randrange(600 if start else 64) for _ in range(8)]
        for place in places:
            damaged[place] = chance.choice([0, 255, chance.randrange(256)])
        try:
            install.import_slots(damaged, platform.machine())
        except ValueError:
            refused += 1
        for place in places:
            damaged[place] = whole[place]
    assert refused > 50


@on_linux
def test_write_to_a_read_only_page():
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    install._protect(start, 8, mmap.PROT_READ)
    install._write(start + 8, 1234567890123456789)
    assert ctypes.c_uint64.from_address(start + 8).value == 1234567890123456789
    assert install.Mapping.at(start).access.startswith("r--")


# --- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "expected"),
    [(0, 4), (1.9, 4), (2.2, 4), (2.3, 3), (3.1, 3), (4, 2), (5.9, 1), (9, 1), (-0.1, 4)],
)
def test_threads_leave_cores_to_others(monkeypatch, others, expected):
    now, count = [100.0], []
    monkeypatch.setattr(
        install, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: None)
    )
    monkeypatch.setattr(install, "busy_seconds", lambda: others * now[0])
    monkeypatch.setattr(install, "physical_cores", lambda: 6)
    monkeypatch.setattr(install, "num_cores", lambda: 4)
    for name in install._FIXED_BY["openblas"]:
        monkeypatch.delenv(name, raising=False)
    library = SimpleNamespace(
        name="openblas", set_num_threads=count.append, get_num_threads=lambda: count[-1]
    )
    pace = install.Pace(library)
    assert not pace.is_due()
    now[0] += 0.3
    assert pace.is_due()
    assert pace.adapt() == expected
    assert not pace.is_due()


@on_linux
def test_others_are_seen_and_this_process_is_not(monkeypatch):
    monkeypatch.setattr(install.time, "process_time", lambda: 0.0)
    before = install.busy_seconds()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            busy.wait(0.5)
        after = install.busy_seconds()
        assert after - before > 0.1
        monkeypatch.setattr(install.time, "process_time", lambda: 1e6)
        assert install.busy_seconds() == pytest.approx(after - 1e6, abs=1)
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

    monkeypatch.setattr(install, "_read", read)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert install.num_cores() == expected
