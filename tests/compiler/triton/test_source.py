"""Texts of kernels: the same message has the same text in every process, so Triton's disk cache knows it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.kernel_texts import fingerprint


def test_a_message_that_is_compiled_again_has_the_same_kernels() -> None:
    assert fingerprint() == fingerprint()


@pytest.mark.slow
def test_another_process_writes_the_same_kernels() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.kernel_texts"],
        cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, "PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.strip() == fingerprint()
