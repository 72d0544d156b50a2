"""How a report looks: on a screen, light or dark, narrow or wide, and on paper."""

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--line:#d5dae0;--box:#f5f7f9;--bad:#b42318;
--good:#1a7f37;--warn:#8a5a00;
--c0:#0b62c4;--c1:#b54708;--c2:#1a7f37;--c3:#8430ce;--c4:#b42318;--c5:#00757f;--c6:#8a5a00;--c7:#5b6470;
--band:#0b62c426;
--preparing:#6f7b88;--setup:#5c70c4;--waiting:#9c7a20;--starting:#2a7fae;--running:#2b8447;--stopping:#bf5f27;
--after:#8a60b8;--between:#dfe4e9;--stall:#fdeedd}
@media screen and (prefers-color-scheme:dark){:root{--bg:#12161b;--fg:#e3e8ed;--dim:#9aa6b2;--line:#353d47;
--box:#1b2129;--bad:#ff8a80;--good:#6fd08c;--warn:#e8b04a;
--c0:#6cb2ff;--c1:#f0a35e;--c2:#6fd08c;--c3:#c79bff;--c4:#ff8a80;--c5:#5ccfd9;--c6:#e0bd57;--c7:#aab4bf;
--band:#6cb2ff33;
--preparing:#8b97a3;--setup:#7688d8;--waiting:#b89a3c;--starting:#58a5cc;--running:#3fa363;--stopping:#c77340;
--after:#9f7fc8;--between:#39424c;--stall:#33281a}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem 1.2rem 4rem;max-width:1180px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.35rem;margin:.4rem 0 .2rem}h2{font-size:1.1rem;margin:2rem 0 .5rem;
border-bottom:1px solid var(--line);padding-bottom:.2rem}
h3{font-size:1rem;margin:1.2rem 0 .4rem}p{margin:.3rem 0}
code,pre,.mono{font:13px/1.45 ui-monospace,Menlo,Consolas,monospace}
pre{background:var(--box);border:1px solid var(--line);border-radius:6px;padding:.6rem .8rem;margin:.4rem 0;
white-space:pre-wrap;overflow-wrap:anywhere}
h1.mono{font-size:1.35rem;font-weight:600}figure p{font-size:13px}.faint{color:var(--dim)}
.bad{color:var(--bad)}.good{color:var(--good)}.warn{color:var(--warn)}
.result{border:1px solid var(--line);border-left:6px solid var(--dim);border-radius:6px;padding:.6rem 1rem;
background:var(--box);margin:.8rem 0}
.result.bad{border-left-color:var(--bad);color:inherit}.result.good{border-left-color:var(--good);color:inherit}
.result b{font-size:1.08rem}.result pre{border:0;padding:.2rem 0;background:none}
table{border-collapse:collapse;width:100%;font-size:14px}th,td{text-align:left;padding:.25rem .7rem .25rem 0;
border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600;color:var(--dim)}.scroll table{overflow-wrap:break-word}
thead th,td.mono{white-space:nowrap}
dl.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),1fr));gap:0 1.6rem;
margin:0;font-size:14px}.facts div{display:flex;gap:.7rem;border-bottom:1px solid var(--line);padding:.25rem 0}
.facts dt{flex:0 0 9rem;font-weight:600;color:var(--dim)}.facts dd{margin:0;min-width:0}
.differs td{background:var(--band)}.scroll{overflow-x:auto}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr));gap:.5rem 1.1rem}
figure{margin:.3rem 0;break-inside:avoid}figcaption{font-size:13px}svg{display:block;width:100%;height:auto}
.key{font-size:12px;display:inline-block;max-width:100%;margin-right:.4em}.axis{font-size:10.5px;fill:var(--dim)}.grid{stroke:var(--line)}
.line{fill:none;stroke-width:1.4;stroke-linejoin:round}.band{fill:var(--band)}
.line.faint{stroke:var(--line)}.mark{stroke:var(--warn);stroke-dasharray:3 3}.mark.failed{stroke:var(--bad);
stroke-width:1.6}
.line.c0{stroke:var(--c0)}.line.c1{stroke:var(--c1)}.line.c2{stroke:var(--c2)}.line.c3{stroke:var(--c3)}
.line.c4{stroke:var(--c4)}.line.c5{stroke:var(--c5)}.line.c6{stroke:var(--c6)}.line.c7{stroke:var(--c7)}
.key.c0{color:var(--c0)}.key.c1{color:var(--c1)}.key.c2{color:var(--c2)}.key.c3{color:var(--c3)}
.key.c4{color:var(--c4)}.key.c5{color:var(--c5)}.key.c6{color:var(--c6)}.key.c7{color:var(--c7)}
.preparing{fill:var(--preparing);color:var(--preparing)}.setup{fill:var(--setup);color:var(--setup)}
.waiting{fill:var(--waiting);color:var(--waiting)}
.starting{fill:var(--starting);color:var(--starting)}.running{fill:var(--running);color:var(--running)}
.swatch{display:inline-block;width:.75em;height:.75em;background:currentColor;print-color-adjust:exact}
.stall{fill:var(--stall);color:var(--stall)}.sign{font-size:10.5px;fill:var(--warn)}.sign.failed{fill:var(--bad)}
.marks{list-style:none;margin:.2rem 0;padding:0;font-size:13px}
.stopping{fill:var(--stopping);color:var(--stopping)}
.after{fill:var(--after);color:var(--after)}.between{fill:var(--between);color:var(--between)}.label{font-size:11px;
fill:var(--fg)}
details{margin:.3rem 0}summary{cursor:pointer}summary:focus-visible{outline:2px solid var(--c0)}
.timeline svg{min-width:640px}
@media print{body{max-width:none;font-size:11px;padding:0}pre,.plot,tr{break-inside:avoid}
h2,h3,summary{break-after:avoid}.timeline svg{min-width:0}.scroll table{overflow-wrap:anywhere}}
@media(max-width:600px){body{padding:.6rem .7rem 3rem}.facts dt{flex-basis:6.5rem}pre{padding:.5rem}}
"""
