"""The ranks of a test as threads."""

from concurrent.futures import ThreadPoolExecutor

import penstock


def on_ranks(size, work):
    """work(cohort) on `size` threads; the results by rank. Raises what a rank raised, or else that others waited."""
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(work, cohort) for cohort in penstock.thread_cohort(size)]
    failures = [future.exception() for future in futures if future.exception()]
    if failures:
        raise min(failures, key=lambda each: isinstance(each, penstock.TimeoutError))
    return [future.result() for future in futures]
