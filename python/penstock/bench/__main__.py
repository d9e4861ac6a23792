"""`python -m penstock.bench`: the same as `penstock bench streams`."""

import sys

from . import main

try:
    sys.exit(main())
except KeyboardInterrupt:
    sys.exit("interrupted")
