"""The command line: `penstock run`, `stream`, `object`, `pool`, `analyze`, `mesh`, `trace`, `bench`, `doctor`."""
