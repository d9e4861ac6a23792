"""The command line: `penstock run`, `ls`, `inspect`, `top`, `save`, `bench`, `doctor`."""
