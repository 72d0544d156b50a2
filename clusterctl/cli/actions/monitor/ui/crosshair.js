// A crosshair over all plots: what their lines were at the moment that the pointer or the arrow keys have chosen.
// The server has written the samples of each plot into an attribute; values are texts that become text nodes here.
{
  const DRAWINGS = "svg.drawing[data-samples]";
  const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
  const parsed = new WeakMap(); // samples of a drawing
  const chosen = { drawing: null, sample: null, byKey: false, focus: null, frame: 0 };
  const spoken = document.createElement("output"); // what a screen reader says of the plot that has the focus
  spoken.className = "spoken";
  document.body.append(spoken);

  function parseSample(row) {
    const [across, time, when, ...values] = row.split("|");
    const parseValue = (value) => {
      const gap = value.indexOf(" ");
      return gap < 0 ? null : { y: Number(value.slice(0, gap)), text: value.slice(gap + 1) };
    };
    return { x: across / 1000, time: Number(time), when, values: values.map(parseValue) };
  }

  function samplesOf(drawing) {
    if (!parsed.has(drawing)) parsed.set(drawing, drawing.dataset.samples.split(";").filter(Boolean).map(parseSample));
    return parsed.get(drawing);
  }

  function findNearest(samples, distance) {
    return samples.reduce((best, one) => (best === null || distance(one) < distance(best) ? one : best), null);
  }

  // Drawing.

  function clear() {
    for (const one of document.querySelectorAll(".crosshair,.reading")) one.remove();
  }

  function makeShape(drawing, tag, attributes) {
    const shape = document.createElementNS(drawing.namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
    return shape;
  }

  function makeText(tag, name, ...children) {
    const part = document.createElement(tag);
    part.className = name;
    part.append(...children);
    return part;
  }

  function listNames(drawing) {
    const title = drawing.closest("figure").querySelector("figcaption b").textContent;
    const names = [...drawing.closest("figure").querySelectorAll(".key")].map((one) => one.textContent.trim());
    return { title, names };
  }

  function draw(drawing, sample) {
    const x = `${100 * sample.x}%`;
    const cross = makeShape(drawing, "g", { class: "crosshair" });
    cross.append(makeShape(drawing, "line", { x1: x, x2: x, y2: drawing.dataset.height }));
    const { names } = listNames(drawing);
    const reading = makeText("div", `reading${sample.x < 0.5 ? " right" : ""}`, makeText("b", "", sample.when));
    sample.values.forEach((value, number) => {
      if (value !== null) cross.append(makeShape(drawing, "circle", { cx: x, cy: value.y, r: 3.5, class: `c${number % 8}` }));
      const label = sample.values.length > 1 ? ` ${names[number] || ""} ` : " ";
      reading.append(makeText("div", "", makeText("i", `swatch c${number % 8}`), label, value ? value.text : "-"));
    });
    drawing.append(cross);
    drawing.closest("figure").append(reading);
  }

  function choose(drawing, sample, byKey) {
    Object.assign(chosen, { drawing, sample, byKey });
    cancelAnimationFrame(chosen.frame);
    chosen.frame = requestAnimationFrame(redraw);
  }

  function redraw() {
    clear();
    const { drawing, sample, byKey } = chosen;
    if (sample === null) return;
    for (const other of document.querySelectorAll(DRAWINGS)) {
      if (other.closest("details:not([open])") || !other.getClientRects().length) continue;
      const nearest = findNearest(samplesOf(other), (one) => Math.abs(one.time - sample.time));
      if (other === drawing) draw(other, sample);
      else if (nearest !== null) draw(other, nearest);
    }
    if (!byKey) return;
    const { title, names } = listNames(drawing);
    const values = sample.values.map((value, number) => `${names[number] || ""} ${value ? value.text : "-"}`.trim());
    spoken.textContent = `${title}: ${sample.when}: ${values.join(", ")}`;
  }

  // Pointer and keys.

  function onPointer(event) {
    const drawing = event.target instanceof Element ? event.target.closest(DRAWINGS) : null;
    if (drawing === null) {
      if (!chosen.byKey && chosen.sample !== null) choose(null, null, false);
      return;
    }
    const box = drawing.getBoundingClientRect();
    const style = getComputedStyle(drawing);
    const [left, right] = [parseFloat(style.paddingLeft), parseFloat(style.paddingRight)];
    const x = (event.clientX - box.left - left) / (box.width - left - right);
    choose(drawing, findNearest(samplesOf(drawing), (one) => Math.abs(one.x - x)), false);
  }

  function onKey(event) {
    const drawing = event.target.closest(DRAWINGS);
    const samples = drawing ? samplesOf(drawing) : [];
    if (event.key === "Escape") choose(null, null, false);
    if (!(event.key in STEPS) || !samples.length || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const from = chosen.drawing === drawing ? samples.indexOf(chosen.sample) : samples.length;
    const start = from + STEPS[event.key];
    choose(drawing, samples[Math.min(samples.length - 1, Math.max(0, start))], true);
  }

  for (const name of ["pointermove", "pointerdown", "pointerover"]) document.addEventListener(name, onPointer);
  document.addEventListener("keydown", onKey);
  document.addEventListener("focusout", (event) => {
    setTimeout(() => {
      if (!event.target.isConnected || !event.target.closest(DRAWINGS)) return; // replaced: the focus returns to it
      if (document.activeElement === document.body) chosen.focus = -1;
      if (chosen.byKey && document.activeElement !== event.target) choose(null, null, false);
    });
  });
  document.documentElement.addEventListener("pointerleave", () => {
    if (!chosen.byKey) choose(null, null, false);
  });

  // The server replaces the plots of a place at once: the crosshair stays at its moment, the focus at its plot.

  let known = [];
  document.addEventListener("focusin", (event) => {
    chosen.focus = known.indexOf(event.target.closest(DRAWINGS));
  });
  new MutationObserver((changes) => {
    if (changes.every((one) => one.target.closest(".plot"))) return; // the crosshair itself
    const before = known.indexOf(chosen.drawing);
    known = [...document.querySelectorAll(DRAWINGS)];
    if (chosen.focus >= 0 && document.activeElement === document.body && known[chosen.focus]) {
      known[chosen.focus].focus({ preventScroll: true });
    }
    if (chosen.sample === null || chosen.drawing.isConnected) return;
    const drawing = known[before] || null;
    const time = chosen.sample.time;
    const sample = drawing && findNearest(samplesOf(drawing), (one) => Math.abs(one.time - time));
    choose(drawing, sample, chosen.byKey && drawing !== null);
  }).observe(document.getElementById("plots"), { childList: true, subtree: true });
}
