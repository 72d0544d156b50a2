// Puts what the server sends into the page. Texts of nodes arrive as markup that the server has escaped, or as lines,
// which become text nodes here. Where a connection breaks the browser opens it again and names the last event it had.
"use strict";

const MOST_LINES = 3000; // in the page
const HIDDEN_FOR = 30000; // ms after which a page that is not looked at lets go of its connection
const RETRY = 5000; // ms
const main = document.getElementById("main");
const lines = document.getElementById("lines");
const state = { stream: null, run: null, last: "", number: 0, waiting: {}, timer: 0, follows: true };

function find(name) {
  return document.getElementById(name);
}

function report(text, kind) {
  const status = find("connection");
  status.textContent = text;
  status.className = kind;
}

// Parts: replaced as a whole, but details stay open, the focus stays, and a selection is not taken away.

function show(name, html) {
  const part = find(name);
  const selection = document.getSelection();
  if (!selection.isCollapsed && part.contains(selection.anchorNode)) {
    state.waiting[name] = html;
    return;
  }
  delete state.waiting[name];
  const key = (element) => element.dataset.key || element.getAttribute("href") || element.textContent;
  const open = new Map([...part.querySelectorAll("details")].map((one) => [key(one.firstChild), one.open]));
  const focused = part.contains(document.activeElement) ? key(document.activeElement) : null;
  part.innerHTML = html; // escaped by the server
  for (const one of part.querySelectorAll("details")) {
    if (open.has(key(one.firstChild))) one.open = open.get(key(one.firstChild));
  }
  if (focused !== null) {
    const same = [...part.querySelectorAll("a,summary,[tabindex]")].find((one) => key(one) === focused);
    if (same) same.focus({ preventScroll: true });
  }
  if (name === "summary") onSummary(part.firstElementChild);
}

function onSummary(summary) {
  const live = summary && summary.dataset.live === "yes";
  find("stop").disabled = find("diagnose").disabled = !live;
  if (!live && find("ask").open) find("ask").close();
  const question = summary && summary.querySelector(".question");
  find("question").replaceChildren(...(question ? question.cloneNode(true).childNodes : []));
  if (summary && summary.dataset.title) document.title = summary.dataset.title;
}

document.addEventListener("selectionchange", () => {
  if (document.getSelection().isCollapsed) {
    for (const [name, html] of Object.entries(state.waiting)) show(name, html);
  }
});

// Lines of the log.

function parseRanks(text) {
  const ranges = [...text.matchAll(/(\d+)(?:\s*-\s*(\d+))?/g)].map((m) => [Number(m[1]), Number(m[2] || m[1])]);
  return ranges.length ? (rank) => ranges.some(([low, high]) => rank >= low && rank <= high) : () => true;
}

function makeFilter() {
  const [ranks, node, text] = ["rank", "node", "text"].map((name) => find(`filter-${name}`).value.trim());
  const hasRank = parseRanks(ranks);
  return (line) =>
    (!ranks || (line.dataset.rank !== "" && hasRank(Number(line.dataset.rank)))) &&
    line.dataset.node.includes(node) &&
    line.lastChild.textContent.toLowerCase().includes(text.toLowerCase());
}

function span(name, text) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = text;
  return element;
}

function makeLine([, node, rank, label, text]) {
  const line = document.createElement("div");
  line.dataset.node = node;
  line.dataset.rank = rank === null ? "" : rank;
  if (label) line.className = "error";
  line.append(span("who", `${node} ${rank === null ? "-" : `r${rank}`}`), span("what", text));
  return line;
}

function addLines(rows) {
  const passes = makeFilter();
  const fresh = document.createDocumentFragment();
  for (const row of rows) {
    if (row[0] > state.number + 1 && state.number > 0) {
      const gap = makeLine([0, "", null, "", main.dataset.gap]);
      gap.className = "gap";
      gap.firstChild.remove();
      fresh.append(gap);
    }
    state.number = row[0];
    const line = makeLine(row);
    line.hidden = !passes(line);
    fresh.append(line);
  }
  lines.append(fresh);
  while (lines.childElementCount > MOST_LINES) lines.firstChild.remove();
  if (state.follows) lines.scrollTop = lines.scrollHeight;
  count();
}

lines.addEventListener("scroll", () => {
  state.follows = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 30;
});

function count() {
  const all = lines.childElementCount;
  const shown = all - lines.querySelectorAll(":scope > [hidden]").length;
  find("count").textContent = main.dataset.count.replace("{shown}", shown).replace("{all}", all);
}

for (const name of ["rank", "node", "text"]) {
  find(`filter-${name}`).addEventListener("input", () => {
    const passes = makeFilter();
    for (const line of lines.children) line.hidden = !passes(line);
    lines.scrollTop = lines.scrollHeight;
    count();
  });
}

// The stream of events.

function connect() {
  disconnect();
  const query = new URLSearchParams({ run: state.run, last: state.last });
  const stream = new EventSource(`events?${query}`);
  state.stream = stream;
  stream.addEventListener("begin", (event) => {
    report(main.dataset.connected, "good");
    if (!JSON.parse(event.data).resumed) {
      lines.replaceChildren();
      state.number = 0;
      count();
    }
  });
  stream.addEventListener("part", (event) => {
    const part = JSON.parse(event.data);
    show(part.name, part.html);
  });
  stream.addEventListener("lines", (event) => {
    state.last = event.lastEventId;
    addLines(JSON.parse(event.data));
  });
  stream.onerror = () => {
    const refused = stream.readyState === EventSource.CLOSED;
    report(refused ? main.dataset.busy : main.dataset.lost, "bad");
    if (refused) state.timer = setTimeout(connect, RETRY);
  };
}

function disconnect() {
  clearTimeout(state.timer);
  if (state.stream) state.stream.close();
  state.stream = null;
}

function navigate() {
  const hash = decodeURIComponent(location.hash.slice(1));
  const run = hash === "main" ? state.run || "" : hash; // the link for keyboards leads there
  if (run === state.run) return;
  document.getSelection().removeAllRanges(); // else the other run's summary would stay beside the buttons
  Object.assign(state, { run, last: "", number: 0, waiting: {} });
  for (const name of ["summary", "nodes", "plots", "notices", "answer", "problem"]) show(name, "");
  lines.replaceChildren();
  find("run").hidden = !run;
  find("list").hidden = Boolean(run);
  document.title = "clusterctl";
  connect();
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(state.timer);
  if (document.hidden) state.timer = setTimeout(disconnect, HIDDEN_FOR);
  else if (!state.stream || state.stream.readyState === EventSource.CLOSED) connect();
});

// Buttons.

async function act(name) {
  show("answer", "");
  find("answer").textContent = main.dataset.working;
  find(name).disabled = true;
  const run = state.run;
  try {
    const answer = await fetch(name, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ run }),
    });
    if (run !== state.run) return;
    if (answer.ok) show("answer", (await answer.json()).html);
    else find("answer").textContent = await answer.text();
  } catch (error) {
    if (run === state.run) find("answer").textContent = String(error);
  }
  onSummary(find("summary").firstElementChild);
}

find("diagnose").addEventListener("click", () => act("diagnose"));
find("stop").addEventListener("click", () => find("ask").showModal());
find("keep").addEventListener("click", () => find("ask").close());
find("confirm").addEventListener("click", () => {
  find("ask").close();
  act("stop");
});
window.addEventListener("hashchange", navigate);
navigate();
