"""What tests of Exodus files need."""

import penstock
import pytest
from penstock import mesh


def has_netcdf():
    try:
        mesh.open("/absent.e").close()
    except penstock.Unsupported:
        return False
    except penstock.NotFound:
        return True


needs_netcdf = pytest.mark.skipif(not has_netcdf(), reason="Penstock was built without netCDF")
