"""A figure of matplotlib as SVG that lives inside a page: its colours, its font and its size are the page's.

Law: the same figure gives the same text. No colour is fixed: whatever was drawn in one of `INKS` takes its colour from
the page's style, light or dark. Ids are unique on a page, and text is text, harmless whatever it says.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from bccnd.errors import PipelineError

#: role -> the colour that stands for it while it is drawn; the page knows it as ``--role``
INKS: Final[Mapping[str, str]] = {
    role: f"#0102{number:02x}"
    for number, role in enumerate(
        (
            *("ink", "soft", "line", "paper", "c1", "c2", "c3", "c4", "c5", "c6", "alarm"),
            *("h0", "h1", "h2", "h3", "h4", "h5", "t0", "t1", "t2", "t3", "t4", "t5"),
        ),
        start=0x10,
    )
}
#: points; what is not said otherwise
FONT: Final = 8.5

#: versions of matplotlib differ in what they say of the types of these
_SETTINGS: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bccnd",
    # names are nobody's formulas
    "text.parse_math": False,
    "font.size": FONT,
    "axes.unicode_minus": False,
    "text.color": INKS["ink"],
    "axes.labelcolor": INKS["soft"],
    "axes.edgecolor": INKS["line"],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INKS["line"],
    "ytick.color": INKS["line"],
    "xtick.labelcolor": INKS["ink"],
    "ytick.labelcolor": INKS["ink"],
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "grid.color": INKS["line"],
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": INKS["ink"],
    "hatch.color": INKS["soft"],
    "hatch.linewidth": 0.6,
}
_FONT: Final = re.compile(r"font: ((?:[\w]+ )*)([\d.]+)px [^;\"]*")
_FAMILY: Final = re.compile(r"font-family: [^;\"]*;? ?")
_COLOUR: Final = re.compile("|".join(INKS.values()))
_ROLES: Final = {colour: role for role, colour in INKS.items()}


def need_matplotlib() -> None:
    """Raises PipelineError: no_matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise PipelineError(
            "no_matplotlib", "the charts need matplotlib, and it is not there", "pip install 'bccnd[pipeline]'"
        ) from error


@contextmanager
def drawing(width: float, height: float) -> Iterator[Any]:
    """A figure of so many points, in the inks of a page."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure


def written(figure: Any, name: str, label: str, titles: Mapping[str, str] | None = None) -> str:
    """The figure as an element of a page. ``label`` says what it shows to who cannot see it, ``titles`` are shown
    where the pointer rests, by the gid of what was drawn."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*|<style.*?</style>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<defs>\s*</defs>\s*", "", text)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = text.replace("url(#", f"url(#{name}-").replace('xlink:href="#', f'href="#{name}-')
    text = _FAMILY.sub("", _FONT.sub(_font, text))
    text = _COLOUR.sub(lambda found: f"var(--{_ROLES[found[0]]})", text)
    for gid, title in (titles or {}).items():
        mark = f'<g id="{name}-{gid}">'
        text = text.replace(mark, f"{mark}<title>{html.escape(title)}</title>")
    box = re.search(r'viewBox="([^"]*)"', text)
    view = box[1] if box else ""
    head = f'<svg viewBox="{view}" role="img" aria-label="{html.escape(label)}" xmlns="http://www.w3.org/2000/svg">'
    return re.sub(r"^<svg[^>]*>", lambda _: head, text)


def _font(found: re.Match[str]) -> str:
    weight = f"font-weight: {found[1].strip()}; " if found[1].strip() else ""
    return f"{weight}font-size: {found[2]}px"
