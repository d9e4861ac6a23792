"""Figures as people read them. Sizes are binary (KiB, MiB), rates decimal (MB/s), as in the documentation."""

from __future__ import annotations

from datetime import datetime


def size(count: float) -> str:
    """Bytes: "512 B", "1.5 MiB"."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    units = ["KiB", "MiB", "GiB", "TiB"]
    count /= 1024
    while abs(count) >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    unit = units[0]
    return f"{count:.3g} {unit}" if abs(count) < 1000 else f"{count:.0f} {unit}"


def rate_of_bytes(per_second: float) -> str:
    """ "410 MB/s", "1.2 GB/s"."""
    if per_second >= 1e9:
        return f"{per_second / 1e9:.2f} GB/s"
    if per_second >= 1e6:
        return f"{per_second / 1e6:.0f} MB/s"
    return f"{per_second / 1e3:.1f} kB/s"


def timestamp(seconds: float) -> str:
    """Seconds since 1970 as the local time, with its zone: "2026-11-21T09:30:00.250+01:00"."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def duration(seconds: float) -> str:
    """ "12 ms", "3.4 s", "2:05 min", "1:02:03 h"."""
    if seconds < 0.0995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"
