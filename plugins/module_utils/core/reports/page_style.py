# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
"""The style sheets of the HTML pages: for light and dark screens, for narrow ones, and for paper."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--bg:#f4f6f9;--card:#fff;--text:#18212f;--quiet:#566174;--line:#dce1e9;--soft:#eef1f5;
--ok:#17754a;--ok-bg:#e3f4eb;--bad:#b3211b;--bad-bg:#fdeae8;--warn:#855100;--warn-bg:#fdf1d8;--info:#2a5aa8;
--info-bg:#e7effb;--node:#6fb592;--mark:#3f9d6f;--part:#dc9f37}
@media(prefers-color-scheme:dark){:root{--bg:#0e131a;--card:#161d27;--text:#e5eaf1;--quiet:#9ba8ba;--line:#2a3443;
--soft:#1d2632;--ok:#53c48c;--ok-bg:#12301f;--bad:#ff8078;--bad-bg:#3b1917;--warn:#e8b04a;--warn-bg:#35270d;
--info:#86b0ff;--info-bg:#172945;--node:#2f7d57;--mark:#3da873;--part:#dba23c}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
overflow-wrap:anywhere}
.in,main{max-width:1240px;margin:0 auto;padding:0 24px}
header{background:var(--card);border-bottom:1px solid var(--line);border-top:5px solid var(--ok)}
header.bad{border-top-color:var(--bad)}
header.warn{border-top-color:var(--part)}
header.info{border-top-color:var(--info)}
.in{padding-top:26px;padding-bottom:26px}
h1,h2,h3,p,ul,dl,dd{margin:0;padding:0}
ul{list-style:none}
.eyebrow,.quiet,small{color:var(--quiet)}
small{font-size:13px;font-weight:400}
.eyebrow{font-size:13px}
h1{display:flex;gap:12px;align-items:flex-start;font-size:25px;line-height:1.3;font-weight:650;margin:8px 0 20px}
h1 svg{flex:none;width:30px;height:30px;margin-top:1px}
svg circle{fill:var(--ok)}
header.bad svg circle{fill:var(--bad)}
header.warn svg circle{fill:var(--part)}
header.info svg circle{fill:var(--info)}
svg path{fill:none;stroke:var(--card);stroke-width:2.4;stroke-linecap:round;stroke-linejoin:round}
.bar{display:flex;gap:2px;height:8px;margin-bottom:20px;border-radius:4px;overflow:hidden}
.bar i{min-width:5px}
.bar .ok{background:var(--mark)}.bar .warn{background:var(--part)}.bar .bad{background:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:12px}
.tiles li{border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.tiles span,.tiles small{display:block;font-size:13px;color:var(--quiet)}
.tiles b{font-size:22px;font-weight:650;line-height:1.3}
.tiles .bad{border-color:var(--bad)}
.tiles .bad small{color:var(--bad);font-weight:600}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;margin:20px 0;padding:18px 22px}
h2{font-size:17px;font-weight:650;margin-bottom:12px}
h3{font-size:15px;font-weight:600;margin-bottom:6px}
code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.badge{display:inline-block;font-size:12.5px;font-weight:600;line-height:1.5;padding:1px 9px;border-radius:10px;
white-space:nowrap}
.badge.ok{color:var(--ok);background:var(--ok-bg)}
.badge.bad{color:var(--bad);background:var(--bad-bg)}
.badge.warn{color:var(--warn);background:var(--warn-bg)}
.badge.info{color:var(--info);background:var(--info-bg)}
.findings li{display:grid;grid-template-columns:76px 1fr;gap:10px;align-items:start;padding:9px 0;
border-top:1px solid var(--line)}
.findings li:first-child{border-top:0;padding-top:0}
.findings .badge{justify-self:start}
.findings code{color:var(--quiet)}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:8px 16px 8px 0;border-top:1px solid var(--line);font-weight:400}
thead th{border-top:0;padding-top:0;color:var(--quiet);font-size:13px;white-space:nowrap}
tbody th{min-width:150px}td{min-width:84px}
td.ok{color:var(--ok)}td.bad{color:var(--bad)}td.warn{color:var(--warn)}
.pools td:not(.image),.pools thead th:not(:first-child):not(:last-child){text-align:right;
font-variant-numeric:tabular-nums}
.pools td.ok,.pools td.bad,.pools td.warn{font-weight:650}
.pools tbody th{font-weight:600}
.pools small{display:block}
.zero{color:var(--quiet)}
.image{max-width:420px}
.pools th:last-child,.image{padding-left:14px}
.legend,.legend li{display:flex;flex-wrap:wrap;gap:4px 18px;align-items:center}
.legend{font-size:13px;color:var(--quiet);margin-bottom:14px}
.owner{margin-bottom:16px}
.owner em{font-style:normal;color:var(--bad);font-weight:600}
.squares{display:flex;flex-wrap:wrap;gap:3px}
.squares i,.legend i{display:inline-block;width:15px;height:15px;border-radius:3px;background:var(--node);
font:700 11px/15px system-ui,sans-serif;text-align:center;flex:none}
.legend li{gap:6px}
.many{gap:2px}.many i{width:12px;height:12px;border-radius:2px;font-size:9px;line-height:12px}
.squares .x,.legend .x,.squares .t,.legend .t{background:var(--bad);color:var(--card)}
.squares .t,.legend .t{background:var(--warn)}
.squares .off,.legend .off{background:none;border:2px dashed var(--quiet)}
.chips{display:flex;flex-wrap:wrap;gap:6px}
.chips i{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;padding:3px 10px;border-radius:6px;
background:var(--ok-bg);color:var(--ok)}
.chips .x{background:var(--bad-bg);color:var(--bad);box-shadow:inset 0 0 0 1.5px var(--bad)}
.chips .t{background:var(--warn-bg);color:var(--warn);box-shadow:inset 0 0 0 1.5px var(--warn)}
.chips .off{background:none;color:var(--quiet);box-shadow:inset 0 0 0 1.5px var(--line)}
.chips b{margin-right:6px}
.map+table{margin-top:8px}
.policy{padding-bottom:14px}
.policy .badge{margin-right:6px}
.policy p+p{color:var(--bad);margin-top:6px}
details{border-top:1px solid var(--line);padding:10px 0}
details:first-of-type{border-top:0;padding-top:0}
summary{cursor:pointer}
summary .badge{margin:0 4px}
details dl{background:var(--soft);border-radius:8px;padding:10px 14px;margin:10px 0 12px}
dl div{display:grid;grid-template-columns:220px 1fr;gap:2px 16px;padding:2px 0}
dt{color:var(--quiet)}
dd{min-width:0}
.quiet{margin-top:6px}
h2+.quiet{margin:0}
@media(max-width:720px){
.in,main{padding-left:14px;padding-right:14px}
section{padding:14px}
h1{font-size:20px}h1 svg{width:26px;height:26px}
.tiles{grid-template-columns:1fr 1fr;gap:8px}
.tiles li:first-child{grid-column:1/-1}
.findings li{grid-template-columns:1fr;gap:4px}
dl div{grid-template-columns:1fr;padding:4px 0}
.stack thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.stack tr{display:block;border-top:1px solid var(--line);padding:8px 0}
.stack tbody tr:first-child{border-top:0}
.stack th,.stack td{display:block;border:0;padding:1px 0}
.stack th,.stack td{min-width:0}
.stack td{position:relative;padding-left:122px}
.stack td::before{content:attr(data-l);position:absolute;left:0;font-size:13px;color:var(--quiet);font-weight:400}
.stack tbody th{font-weight:600}
.stack .zero{display:none}
.pools td:not(.image){text-align:left}
.image{max-width:none;min-height:25px}
}
@media print{body{background:none}section{break-inside:avoid-page}}
"""

RUN_STYLE = """
.why{background:var(--bad-bg);border-radius:8px;padding:12px 16px;color:var(--bad);white-space:pre-wrap}
.why+ul{margin-top:12px}
.plan{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap;margin:0}
.total{font-weight:600;margin-bottom:12px}
.chart{display:grid;grid-template-columns:52px 1fr;margin-bottom:14px}
.names{grid-column:2;position:relative;height:22px;font-size:13px;color:var(--quiet)}
.names span{position:absolute;overflow:hidden;white-space:nowrap;text-overflow:ellipsis;padding-left:4px;
border-left:1px solid var(--line)}
.plot{grid-column:2;position:relative;height:230px;border-bottom:1px solid var(--quiet)}
.plot svg{display:block;width:100%;height:100%;overflow:visible}
.plot .b{fill:var(--soft)}.plot .s{fill:var(--info-bg)}.plot .g{fill:var(--info);opacity:.35}.plot rect.bad{fill:var(--bad-bg);opacity:1}
.plot path{stroke-linecap:round;vector-effect:non-scaling-stroke}
.plot .grid{stroke:var(--line);stroke-width:1}
.plot .stem{stroke:var(--mark);stroke-width:1.5;opacity:.5}.plot .stem.warn{stroke:var(--part)}.plot .stem.bad{stroke:var(--bad)}
.plot .p{stroke-width:9}.plot .small{stroke-width:6}.plot .tiny{stroke-width:4}
.plot .p.ok{stroke:var(--mark)}.plot .p.warn{stroke:var(--part)}.plot .p.bad{stroke:var(--bad)}
.y{position:absolute;right:100%;margin-right:8px;transform:translateY(-50%);font-size:13px;color:var(--quiet);white-space:nowrap}
.tag{position:absolute;transform:translateY(-50%);margin:0 9px;font-size:13px;font-weight:600;background:var(--card);
padding:0 6px;border-radius:4px;max-width:60%}
.tag.warn{color:var(--warn)}.tag.bad{color:var(--bad)}
.times{grid-column:2;display:flex;justify-content:space-between;font-size:13px;color:var(--quiet);padding-top:5px}
.legend .p{border-radius:50%;width:10px;height:10px;background:var(--mark)}
.legend .p.warn{background:var(--part)}.legend .p.bad{background:var(--bad)}
.legend .b{background:var(--soft);border:1px solid var(--line)}
.legend .s{background:var(--info-bg);border:1px solid var(--line)}
.legend .g{background:var(--info);opacity:.45}
ol{list-style:none;margin:0 0 16px;padding:0}
.gaps{columns:2;column-gap:36px}
.gaps li{display:grid;grid-template-columns:34px 70px minmax(80px,1.2fr) 1fr 64px;gap:0 10px;align-items:center;padding:2px 0;
break-inside:avoid;font-variant-numeric:tabular-nums}
.gaps .first{box-shadow:inset 0 1px var(--line)}
.gaps em,.gaps time,.all time{color:var(--quiet);font-style:normal;font-size:13px}
.gaps em{text-align:right}
.gaps i{display:block;height:9px;border-radius:3px;background:var(--soft)}
.gaps i i{background:var(--mark)}
.gaps .warn i i{background:var(--part)}.gaps .bad i i{background:var(--bad)}
.gaps b{font-weight:400;text-align:right}
.gaps .warn b{color:var(--warn);font-weight:650}.gaps .bad b,.gaps .bad p{color:var(--bad);font-weight:650}
.gaps p{grid-column:3/-1;font-size:13px;font-weight:400}
.all{font-size:13px;padding-top:8px}
.all b{display:inline-block;min-width:34px;font-weight:400;color:var(--quiet)}
td ul{max-width:760px}
section>:last-child{margin-bottom:0}
@media(max-width:720px){
.chart{grid-template-columns:44px 1fr}
.plot{height:190px}
.roomy{display:none}
.times span:nth-child(even){display:none}
.gaps{columns:1}
.gaps li{grid-template-columns:26px 62px 1fr 64px;padding:4px 0}
.gaps li>i{grid-column:3/-1;grid-row:2}
}
@media print{.plot,.gaps i,.legend i{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
"""What only the page of a run needs."""
