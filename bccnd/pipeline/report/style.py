"""The page's style.

Law: nothing is fetched: system fonts, no pictures. Every colour is a role that is defined twice, light and dark, and
chosen so that who cannot tell red from green sees the same; paper is always light.
"""

from __future__ import annotations

from typing import Final

_LIGHT: Final = """
  color-scheme: light;
  --paper: #ffffff; --card: #f5f7f9; --ink: #1a1f25; --soft: #525c67; --line: #d5dbe1; --link: #0b57a8;
  --urgent: #a31621; --urgent-bg: #fdecec; --look: #7a4a00; --look-bg: #fdf3df; --note: #2b5583; --note-bg: #eaf2fa;
  --well: #14603a; --well-bg: #e5f5ec;
  --c1: #0b62b0; --c2: #b8560b; --c3: #5b3f8f; --c4: #00735c; --c5: #8a6d00; --c6: #b9c2cb; --alarm: #a31621;
  --h0: #e9edf1; --h1: #fbeec2; --h2: #f8cf6d; --h3: #ef9a3c; --h4: #c9541b; --h5: #741a0b;
  --t0: #1a1f25; --t1: #1a1f25; --t2: #1a1f25; --t3: #1a1f25; --t4: #ffffff; --t5: #ffffff;
"""
_DARK: Final = """
  color-scheme: dark;
  --paper: #13171b; --card: #1c2228; --ink: #e7eaed; --soft: #a9b3bd; --line: #3a434c; --link: #7ab8f5;
  --urgent: #ff9c97; --urgent-bg: #3b1719; --look: #f2bd62; --look-bg: #33270f; --note: #96c2ef; --note-bg: #16283b;
  --well: #7fd3a4; --well-bg: #12301f;
  --c1: #62aef2; --c2: #f0a05c; --c3: #bda1f0; --c4: #4fc7a8; --c5: #d9bd4a; --c6: #56616c; --alarm: #ff857e;
  --h0: #262d34; --h1: #4b3d17; --h2: #7d5c16; --h3: #b97f1f; --h4: #e8ab52; --h5: #ffe3b3;
  --t0: #e7eaed; --t1: #ffffff; --t2: #ffffff; --t3: #13171b; --t4: #13171b; --t5: #13171b;
"""

STYLE: Final = f"""
:root {{ {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
@media print {{ :root {{ {_LIGHT} }} }}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; }}
body {{
  margin: 0 auto; padding: 1.5rem 1.25rem 3rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", Arial, sans-serif;
  overflow-wrap: anywhere;
}}
h1 {{ font-size: 1.6rem; line-height: 1.2; margin: 0; }}
h2 {{ font-size: 1.2rem; line-height: 1.3; margin: 2.75rem 0 .4rem; }}
h3 {{ font-size: 1.02rem; line-height: 1.35; margin: 0; }}
p {{ margin: .4rem 0; max-width: 46rem; }}
a {{ color: var(--link); }}
.soft {{ color: var(--soft); }}
.print {{ display: none; color: var(--soft); }}
.period {{ color: var(--soft); margin: .2rem 0 1rem; }}
.verdict {{ border-radius: .5rem; padding: .8rem 1rem; font-size: 1.12rem; font-weight: 600; max-width: none; }}
.verdict.s0 {{ background: var(--urgent-bg); color: var(--urgent); }}
.verdict.s1 {{ background: var(--look-bg); color: var(--look); }}
.verdict.s2 {{ background: var(--note-bg); color: var(--note); }}
.verdict.s3 {{ background: var(--well-bg); color: var(--well); }}
.figures {{
  display: grid; grid-template-columns: repeat(auto-fit, minmax(8.2rem, 1fr)); gap: .6rem; margin: 1rem 0 0; padding: 0;
}}
.figures div {{ background: var(--card); border-radius: .5rem; padding: .55rem .8rem; }}
.figures dt {{ color: var(--soft); font-size: .85rem; }}
.figures dd {{ margin: 0; font-size: 1.3rem; font-weight: 600; line-height: 1.3; }}
.figures dd small {{ display: block; font-size: .8rem; font-weight: 400; color: var(--soft); }}
ol.findings {{ list-style: none; margin: .8rem 0 0; padding: 0; }}
.findings > li {{
  border-left: .3rem solid var(--line); background: var(--card); border-radius: .25rem .5rem .5rem .25rem;
  padding: .7rem 1rem .75rem; margin: 0 0 .7rem;
}}
.findings > .s0 {{ border-color: var(--urgent); }}
.findings > .s1 {{ border-color: var(--look); }}
.findings > .s2 {{ border-color: var(--note); }}
.tag {{ display: inline-block; font-size: .78rem; font-weight: 600; letter-spacing: .02em; margin-bottom: .1rem; }}
.s0 .tag {{ color: var(--urgent); }} .s1 .tag {{ color: var(--look); }} .s2 .tag {{ color: var(--note); }}
.findings dl {{ margin: .3rem 0 0; display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; }}
.findings dt {{ color: var(--soft); }}
.findings dd {{ margin: 0; }}
.chart, .scroll {{ overflow-x: auto; max-width: 100%; }}
.wide svg {{ min-width: 38rem; }}
svg {{ display: block; width: 100%; height: auto; color: var(--ink); }}
svg text {{ font-family: inherit; }}
svg * {{ stroke-linejoin: round; stroke-linecap: butt; }}
.chart {{ margin: .9rem 0 .5rem; }}
.chart.narrow svg {{ min-width: 22.5rem; max-width: 40rem; }}
.legend {{
  display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; margin: .3rem 0; list-style: none; font-size: .85rem;
  color: var(--soft);
}}
.legend i {{
  display: inline-block; width: .95rem; height: .95rem; border-radius: .15rem; margin-right: .35rem;
  vertical-align: -.12rem; print-color-adjust: exact; -webkit-print-color-adjust: exact;
}}
details {{ margin: .5rem 0; }}
summary {{ cursor: pointer; color: var(--link); font-size: .92rem; padding: .2rem 0; }}
table {{ border-collapse: collapse; font-size: .88rem; line-height: 1.4; margin: .4rem 0; }}
caption {{ text-align: left; color: var(--soft); padding: .2rem 0; }}
th, td {{
  text-align: left; vertical-align: top; padding: .22rem .9rem .22rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: break-word; max-width: 22rem;
}}
th {{ font-weight: 600; color: var(--soft); white-space: nowrap; }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
footer {{
  margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .8rem; color: var(--soft); font-size: .88rem;
}}
@media (max-width: 34rem) {{
  body {{ padding: 1rem .9rem 2rem; }}
  h1 {{ font-size: 1.35rem; }}
  .findings > li {{ padding: .6rem .8rem; }}
  .findings dl {{ display: block; }}
  .findings dt, .findings dd {{ display: inline; }}
  .findings dt::after {{ content: ":"; }}
  .findings dd::after {{ content: "\\A"; white-space: pre; }}
}}
@media print {{
  @page {{ size: A4; margin: 14mm; }}
  body {{ max-width: none; padding: 0; font-size: 10.5pt; }}
  .findings > li, .chart, .figures div, tr {{ break-inside: avoid; }}
  h2, h3, summary, caption {{ break-after: avoid; }}
  .wide svg, .chart.narrow svg {{ min-width: 0; max-height: 225mm; }}
  .figures {{ grid-template-columns: repeat(5, 1fr); }}
  .chart, .scroll {{ overflow: visible; }}
  .figures div, .findings > li {{ border: 1px solid var(--line); }}
  .findings > li {{ border-left-width: .3rem; }}
  details::details-content {{ content-visibility: visible; block-size: auto; }}
  tbody tr:nth-child(n+31) {{ display: none; }}
  .print {{ display: block; }}
  table {{ font-size: 8.5pt; }}
  th, td {{ padding-right: .5rem; max-width: 12rem; overflow-wrap: anywhere; }}
  a {{ color: inherit; text-decoration: none; }}
  nav {{ display: none; }}
}}
"""
