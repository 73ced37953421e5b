"""Measurements of the product, run by ``python -m tests.benchmarks``; never a timed assertion in the suite.

A family of measurements is a module with ``measure(bench) -> Iterator[Figure]``. Every figure is the median of repeated
runs in one process after warm-up; what is compared is measured in turns (ours, plain, ours, plain, ...), and the ratio
is the median of the pairs' ratios, so that it holds on a noisy machine.
"""
