"""The command line: `penstock run`, `ls`, `inspect`, `top`, `save`, `analyze`, `bench`, `doctor`."""
