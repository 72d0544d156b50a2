"""What `--since` means: a span before now, a time of day, or a date."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from clusterctl.errors import UsageError

_SPAN = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_FIX = "such as 10m, 1h30m, 14:05, 2026-11-21 or 2026-11-21T14:05; a time is that of this machine"


def parse_since(text: str, now: datetime) -> float:
    """Give the moment in seconds since 1970; `now` is local. A time of day is the last one before now."""
    span = _SPAN.fullmatch(text)
    try:
        if text and span:
            days, hours, minutes, seconds = (int(part or 0) for part in span.groups())
            return now.timestamp() - ((days * 24 + hours) * 60 + minutes) * 60 - seconds
        clock = _CLOCK.fullmatch(text)
        if clock:
            hour, minute, second = (int(part or 0) for part in clock.groups())
            today = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return (today if today <= now else today - timedelta(days=1)).timestamp()
        return datetime.fromisoformat(re.sub(r"Z$", "+00:00", text)).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"--since {text}: neither a span nor a time", code="CC-USE-035", fix=_FIX) from error
