"""cpu/install.py: products after enable() against the textbook's loops, and every refusal.

A process is patched once, so what needs an unpatched one runs in a process of its own.
"""

import ctypes
import os
from dataclasses import replace
from types import SimpleNamespace

import mlx.core as mx
import pytest
from compare import assert_close
from linux_cpu import libmlx, on_linux, run, with_library

from model.cpu import install
from model.cpu.addresses import Mapping, file_at
from model.cpu.slots import Slots, import_slots


@pytest.fixture(scope="module")
def report():
    return install.enable()


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


# --- what is reported ----------------------------------------------------------------------------


@with_library
def test_report_is_true(report):
    if os.environ.get(install.SWITCH):
        pytest.skip(f"{install.SWITCH} is set")
    assert report.name == "openblas"
    assert report.path in {mapping.path for mapping in Mapping.all()}
    handle = ctypes.CDLL(report.path)
    config = ctypes.CFUNCTYPE(ctypes.c_char_p)(("scipy_openblas_get_config", handle))()
    assert report.version.split()[0] in config.decode()
    assert install.enable().num_threads == handle.scipy_openblas_get_num_threads()
    places = Slots.of(str(libmlx()), import_slots).places()
    functions = [ctypes.c_uint64.from_address(place).value for place in places]
    files = {file_at(function) for function in functions}
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
from model.cpu.addresses import Mapping
import mlx.core as mx
report = install.enable()
print(report.name, report.path, report.num_threads, install.adapt())
print(report.reason)
print((mx.ones((2, 3)) @ mx.ones((3, 1))).tolist())
own = {m.path for m in Mapping.all() if "blas" in m.path.rpartition("/")[2]}
print(len(own), str(report))
"""


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
from model.cpu import install, libraries
libraries._files_of = lambda package, prefix: ()
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
from model.cpu.addresses import address_of, word
slots = install.Slots.of_libmlx()
held = [word(place) for place in slots.places()]
nothing = address_of(ctypes.CDLL(None).getpid)
real = install.Library.open
def broken(path):
    library = real(path)
    return replace(library, name="mkl", functions=dict.fromkeys(library.functions, nothing))
install.Library.open = broken
{trusted}
print(install.enable().name, "wrong products" in install.enable().reason)
print(held == [word(place) for place in slots.places()])
print((mx.ones((2, 3)) @ mx.ones((3, 1))).tolist())
"""
    assert run(script) == ["None True", "True", "[[3.0], [3.0]]"]


@on_linux
def test_someone_elses_blas_is_left_alone():
    script = """
import ctypes
from model.cpu import install
from model.cpu.addresses import address_of
slots = install.Slots.of_libmlx()
slots.write(dict.fromkeys(slots.addresses, address_of(ctypes.CDLL(None).getpid)))
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
