"""Analyses of the steps of a simulation. In the making: docs/internals/coprocessing.md says what it is to be."""
