"""What the drop of a column leaves of a change: cells that are newer than the drop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.model.change import Cell, Change, Delta


def newer(cell: Cell, time: int | None, dropped_us: int) -> Cell | None:
    """What of a cell is newer than a time, with its own times; None when nothing is. `time` is that of its change."""
    if not isinstance(cell, Delta):
        own = time if cell.time is None else cell.time
        return cell._replace(time=own) if own is not None and own > dropped_us else None
    elements = [one._replace(time=time if one.time is None else one.time) for one in cell.elements]
    removed = [one._replace(time=time if one.time is None else one.time) for one in cell.removed]
    replaced = cell.replaced if cell.replaced is not None and cell.replaced.time > dropped_us else None
    newer_elements = tuple(one for one in elements if one.time is not None and one.time > dropped_us)
    newer_removed = tuple(one for one in removed if one.time is not None and one.time > dropped_us)
    if replaced is None and not newer_elements and not newer_removed:
        return None
    return Delta(replaced, newer_elements, newer_removed)


def without_older(change: Change, floors: Mapping[str, int]) -> Change:
    """A change without the cells up to the floors of their columns."""
    if floors.keys().isdisjoint(change.cells):
        return change
    cells: dict[str, Cell] = {}
    for name, cell in change.cells.items():
        kept = newer(cell, change.time, floors[name]) if name in floors else cell
        if kept is not None:
            cells[name] = kept
    return replace(change, cells=cells)
