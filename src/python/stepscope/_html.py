"""What notebooks show: a small report, in one piece and without scripts. All text of a run is escaped."""

from html import escape
from typing import TYPE_CHECKING, Any, Iterable, List, Optional, Sequence, Tuple

from . import _text

if TYPE_CHECKING:
    from ._analysis import Analysis
    from ._diff import Diff

# So many kernels, findings and causes are shown.
_MOST = 8
_PARTS = (
    ("compute", "compute_ns", "#4e79a7"),
    ("exposed communication", "exposed_communication_ns", "#e15759"),
    ("exposed copies", "exposed_copy_ns", "#f28e2b"),
    ("idle", "idle_ns", "#bab0ac"),
)
_COLORS = ("#4e79a7", "#59a14f", "#edc948", "#b07aa1", "#76b7b2", "#ff9da7", "#9c755f", "#bab0ac")
_CELL = "padding:1px 12px 1px 0;text-align:%s;background:none"

_Bar = Sequence[Tuple[str, float, str, str]]


def analysis(of: "Analysis") -> str:
    """A report of a run."""
    run = of.run
    head = [run.name, run.state, "%d ranks" % run.world_size if run.world_size != 1 else "1 rank"]
    if run.model is not None:
        head.append(run.model.name)
    if run.device is not None:
        head.append(run.device.name)
    parts = [_title(" · ".join(head)), _facts(_headline(of)), _bar("Where the time goes", _time(of))]
    fullest = max(of.memory, key=lambda memory: memory.peak_bytes or 0, default=None)
    if fullest is not None:
        title = "Memory at its peak, %s on rank %d" % (_text.size(fullest.peak_bytes), fullest.rank)
        parts.append(_bar(title, _memory(fullest.at_peak or {})))
    if of.findings:
        parts.append(_list("Findings", [(finding.text, finding.advice) for finding in of.findings[:_MOST]]))
    if of.kernels:
        rows = [
            (kernel.name, _text.count(kernel.count), _text.duration(kernel.total_ns), _text.percent(kernel.share))
            for kernel in of.kernels[:_MOST]
        ]
        parts.append(_table(("kernel", "count", "time", "share"), rows))
    return _page(parts)


def diff(of: "Diff") -> str:
    """A report of what changed."""
    parts = [_title("%s → %s" % (of.base, of.other))]
    if not of.comparable:
        parts.append(_list("Not comparable", [(why, None) for why in of.why_not or []]))
    facts = []
    time, memory = of.step_time, of.peak_memory
    if time is not None:
        change = _text.signed(_text.duration(time.change_ns), time.change_ns)
        within = ""
        if time.low_ns is not None and time.high_ns is not None:
            within = " (95%%: %s to %s)" % (_text.duration(time.low_ns), _text.duration(time.high_ns))
        both = "%s → %s" % (_text.duration(time.base_ns), _text.duration(time.other_ns))
        facts.append(("step", "%s: %s%s" % (both, change, within)))
    if memory is not None:
        change = _text.signed(_text.size(memory.change_bytes), memory.change_bytes)
        both = "%s → %s" % (_text.size(memory.base_bytes), _text.size(memory.other_bytes))
        facts.append(("memory", "%s: %s" % (both, change)))
    for name in ("tokens_per_second", "mfu"):
        metric = of.metric(name)
        if metric is not None and metric.base is not None and metric.other is not None:
            say = _text.percent if name == "mfu" else _text.count
            facts.append((_text.spelled(name), "%s → %s" % (say(metric.base), say(metric.other))))
    parts.append(_facts(facts))
    if time is not None:
        causes = sorted(time.causes or [], key=lambda cause: -abs(cause.change_ns))[:_MOST]
        rows = [
            (
                cause.cause,
                _text.duration(cause.base_ns),
                _text.duration(cause.other_ns),
                _text.signed(_text.duration(cause.change_ns), cause.change_ns),
                "more than chance" if cause.significant else "",
            )
            for cause in causes
        ]
        parts.append(_table(("why a step's time changes", of.base, of.other, "change", ""), rows))
    changed = [cause for cause in (memory.causes if memory is not None else []) if cause.change_bytes]
    if changed:
        shown = [
            (cause.cause, _text.size(cause.base_bytes), _text.size(cause.other_bytes), _text.size(cause.change_bytes))
            for cause in sorted(changed, key=lambda cause: -abs(cause.change_bytes))[:_MOST]
        ]
        parts.append(_table(("why the peak of memory changes", of.base, of.other, "change"), shown))
    if of.notes:
        parts.append(_list("Notes", [(note, None) for note in of.notes]))
    return _page(parts)


def _headline(of: "Analysis") -> List[Tuple[str, str]]:
    facts = []
    time = of.step_time
    if time is not None:
        steps = "step %d" % time.first_step if time.count == 1 else "steps %d to %d" % (time.first_step, time.last_step)
        inferred = ", inferred" if time.inferred else ""
        facts.append(("step", "%s median, over %s%s" % (_text.duration(time.median_ns), steps, inferred)))
        if time.tokens_per_second is not None:
            facts.append(("speed", "%s tokens/s" % _text.count(time.tokens_per_second)))
    if of.mfu is not None and of.mfu.value is not None:
        hardware = ", HFU %s" % _text.percent(of.mfu.hfu) if of.mfu.hfu is not None else ""
        facts.append(("MFU", _text.percent(of.mfu.value) + hardware))
    loss = of.data_loss
    lost = [
        "%s %s" % (_text.count(amount), what)
        for amount, what in ((loss.dropped_events, "events dropped"), (loss.unreadable_bytes, "bytes unreadable"))
        if amount
    ]
    if lost:
        facts.append(("lost", ", ".join(lost)))
    return facts


def _time(of: "Analysis") -> _Bar:
    ranks = of.counted or of.ranks or []
    sums = [(name, sum(getattr(rank, key) or 0 for rank in ranks), color) for name, key, color in _PARTS]
    total = sum(amount for _, amount, _ in sums)
    return [(name, amount, color, _text.percent(amount / total)) for name, amount, color in sums if total and amount]


def _memory(at_peak: Any) -> _Bar:
    filled = sorted(((name, amount) for name, amount in at_peak.items() if amount), key=lambda pair: -pair[1])
    colored = zip(filled, _COLORS * (len(filled) // len(_COLORS) + 1))
    return [(_text.spelled(name), amount, color, _text.size(amount)) for (name, amount), color in colored]


def _page(parts: Iterable[str]) -> str:
    return '<div style="font-family:sans-serif;font-size:13px;max-width:60em">%s</div>' % "".join(parts)


def _title(text: str) -> str:
    return '<div style="font-weight:bold;font-size:15px;margin-bottom:4px">%s</div>' % escape(text)


def _heading(text: str) -> str:
    return '<div style="margin:8px 0 2px;font-weight:bold">%s</div>' % escape(text)


def _facts(facts: Iterable[Tuple[str, str]]) -> str:
    return "".join("<div><b>%s</b> %s</div>" % (escape(name), escape(value)) for name, value in facts)


def _bar(title: str, parts: _Bar) -> str:
    total = sum(amount for _, amount, _, _ in parts)
    if not total:
        return ""
    pieces = "".join(
        '<div title="%s" style="width:%.3f%%;background:%s"></div>'
        % (escape("%s %s" % (name, value)), 100 * amount / total, color)
        for name, amount, color, value in parts
    )
    legend = "".join(
        '<span style="margin-right:12px;white-space:nowrap"><span style="display:inline-block;width:9px;height:9px;'
        'background:%s"></span> %s %s</span>' % (color, escape(name), escape(value))
        for name, _, color, value in parts
    )
    bar = '<div style="display:flex;height:16px;border-radius:3px;overflow:hidden">%s</div>' % pieces
    return "%s%s<div>%s</div>" % (_heading(title), bar, legend)


def _list(title: str, items: Iterable[Tuple[str, Optional[str]]]) -> str:
    said = "".join(
        "<li>%s%s</li>" % (escape(what), "<br><i>%s</i>" % escape(advice) if advice else "") for what, advice in items
    )
    return '%s<ul style="margin:0;padding-left:18px">%s</ul>' % (_heading(title), said)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cell(tag: str, place: int, text: str) -> str:
        short = text if len(text) <= 80 else text[:79] + "…"
        aligned = _CELL % ("left" if place == 0 else "right")
        return '<%s style="%s" title="%s">%s</%s>' % (tag, aligned, escape(text), escape(short), tag)

    def row(tag: str, cells: Sequence[str]) -> str:
        return "<tr>%s</tr>" % "".join(cell(tag, place, text) for place, text in enumerate(cells))

    body = "".join(row("td", cells) for cells in rows)
    return '<table style="border-collapse:collapse;margin-top:8px">%s%s</table>' % (row("th", head), body)
