"""scripts/failures shows what failed, and is silent when nothing did."""

import subprocess
import sys
from pathlib import Path

FAILURES = Path(__file__).with_name("failures")


def shown(folder, ctest, pytest):
    (folder / "ctest.xml").write_text(f"<testsuite>{ctest}</testsuite>")
    (folder / "pytest.xml").write_text(f"<testsuites><testsuite>{pytest}</testsuite></testsuites>")
    done = subprocess.run([sys.executable, FAILURES, folder], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_it_shows_the_end_of_what_failed_tests_said(tmp_path):
    long = "\n".join(f"line {n}" for n in range(100))
    out = shown(
        tmp_path,
        f'<testcase name="test_a.B.c" status="fail"><failure/><system-out>{long}</system-out></testcase>',
        '<testcase name="test_d[1]"><failure>E  assert 3 == 4</failure></testcase><testcase name="test_e"/>',
    )
    assert "test_a.B.c failed" in out and "line 99" in out and "line 9\n" not in out
    assert "test_d[1] failed" in out and "assert 3 == 4" in out and "test_e" not in out


def test_it_is_silent_when_nothing_failed(tmp_path):
    assert shown(tmp_path, '<testcase name="a" status="run"/>', '<testcase name="b"/>') == ""
