"""The last step before the terminal where rich prints: what moves a cursor comes from rich, never from a text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from clusterctl.console.text import drop_controls


class SanitizedConsole(Console):
    """A console that drops control characters from all texts; they have no width, so columns stay where they are."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does, with clean texts."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(drop_controls(text), style)
