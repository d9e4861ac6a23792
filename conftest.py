"""Of all Python tests."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def mpi_session_folder(tmp_path_factory):
    """Open MPI's launchers share a folder: one that ends removes it while another one begins (open-mpi/ompi#8510)."""
    os.environ |= {"OMPI_MCA_orte_tmpdir_base": str(tmp_path_factory.mktemp("mpi"))}
