"""model.cpu.applies: what a GPU runs is run wherever it says no, and the answers are the same."""

import mlx.core as mx
import pytest
from compare import ALL, REFERENCE, assert_close, golden

from model import cpu, ops
from model.cpu import layout
from model.rope import Rope, Rotary
from model.weights.load import load


@pytest.mark.parametrize("device", [mx.cpu, mx.gpu])
def test_only_a_cpu_has_forms_of_its_own(monkeypatch, device):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(device))
    on_cpu = device == mx.cpu
    assert cpu.applies() is on_cpu
    assert cpu.applies(mx.float32) is on_cpu
    assert not cpu.applies(mx.bfloat16)
    assert not cpu.applies(mx.float16)


def test_a_no_is_heard_everywhere(monkeypatch):
    """MLX's own functions are called where a CPU's forms stood in for them."""
    monkeypatch.setattr(cpu, "applies", lambda dtype=None: False)
    called = []
    for name in ("rope", "rms_norm", "scaled_dot_product_attention"):
        own = getattr(mx.fast, name)
        monkeypatch.setattr(
            mx.fast, name, lambda *a, name=name, own=own, **k: called.append(name) or own(*a, **k)
        )
    x = mx.ones((1, 2, 3, 8))
    Rotary(Rope(), 8).at(0, 3)(x)
    ops.RMSNorm(8, 1e-6)(x)
    ops.attend(x, x, x, scale=1.0, mask=None)
    assert called == ["rope", "rms_norm", "scaled_dot_product_attention"]
    assert not layout.is_worthwhile(mx.float32)


@pytest.mark.parametrize("name", ALL)
def test_the_forms_of_a_gpu_give_the_recorded_logits(name, monkeypatch):
    monkeypatch.setattr(cpu, "applies", lambda dtype=None: False)
    expected = golden(name)
    m = load(REFERENCE / name, "float32")
    logits = m(mx.array([expected["ids"]]))[0]
    assert_close(logits[0], expected["logits_first"], atol=1e-4)
    assert_close(logits[-1], expected["logits_last"], atol=1e-4)
