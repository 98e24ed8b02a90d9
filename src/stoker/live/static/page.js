// Draws a run from what the server tells of it: spans of time that are over, and how it stands now.
//
// Asks for what is new once a second; when the run has ended, no more. A report holds what it draws, of one run or two
// (cli/tell/page.py). A span: where it begins (at), how long it is (long), how
// long ago the one before ended (over), rows. A row: loader, batches, samples, longest step, and the parts of the time in the
// order of PARTS (live/feed.py).
"use strict";
(() => {
  const PARTS = ["data", "own", "copy", "communication", "compute", "other", "unseen"];
  const WORDS = {
    data: "waiting for data", own: "stoker's own work", copy: "copying to the device",
    communication: "waiting for other ranks", compute: "the model", other: "other Python", unseen: "not looked at",
  };
  const EVERY_MS = 1000, PATIENCE_MS = 30000, LATER_MS = 10000, MAX_POINTS = 1200, MAX_LINES = 8, MIN_BAND_COLUMNS = 60, MAX_BAND_COLUMNS = 480;
  const token = new URLSearchParams(location.search).get("token") || "";
  const element = (id) => document.getElementById(id);
  const state = { spans: [], now: null, charts: {}, failedSince: null, why: "" };
  const held = element("told") && JSON.parse(element("told").textContent);

  // ---- numbers in words

  const number = (value, digits = 0) =>
    value === null || value === undefined || Number.isNaN(value) ? "-" : value.toLocaleString("en-US", { maximumFractionDigits: digits });
  const percent = (value) => (value === null || !Number.isFinite(value) ? "-" : `${number(100 * value, 0)} %`);
  const rate = (value) => number(value, value < 10 ? 2 : 0);
  const seconds = (s) => (s >= 1 ? `${number(s, 1)} s` : `${number(1e3 * s, s >= 0.1 ? 0 : s >= 0.01 ? 1 : 2)} ms`);
  const bytes = (value) => {
    if (value === null || value === undefined) return "-";
    for (const unit of ["B", "KB", "MB", "GB"]) {
      if (value < 1000) return `${number(value, value < 10 && unit !== "B" ? 1 : 0)} ${unit}`;
      value /= 1000;
    }
    return `${number(value, 1)} TB`;
  };
  const clock = (s) => {
    const whole = Math.floor(s), h = Math.floor(whole / 3600), m = Math.floor((whole % 3600) / 60), rest = whole % 60;
    return h ? `${h}:${String(m).padStart(2, "0")}:${String(rest).padStart(2, "0")}` : m ? `${m}:${String(rest).padStart(2, "0")}` : `${rest} s`;
  };

  // ---- what a span says

  const loaderRow = (span, loader) => span.rows.find((row) => row[0] === loader);
  const rateOf = (span, loader) => (loaderRow(span, loader) || [0, 0, 0])[2] / span.over;
  const waitOf = (span, loader) => {
    const row = loaderRow(span, loader);
    if (!row) return null;
    const total = row.slice(4).reduce((a, b) => a + b, 0);
    return total > 0 ? row[4] / total : null;
  };
  const inWords = (split) => {
    const total = split.reduce((a, b) => a + b, 0) || 1, parts = PARTS.map((part, k) => [WORDS[part], split[k] / total]);
    return parts.filter(([, share]) => share >= 0.005).sort((a, b) => b[1] - a[1]).map(([word, share]) => `${word} ${percent(share)}`).join(", ");
  };
  const splitOf = (span) => PARTS.map((_, k) => span.rows.reduce((sum, row) => sum + row[4 + k], 0));

  // So many points as a screen has room for: neighbours become one, which says what happened in all of them; of what is
  // looked at only now and then, the mean.
  const joined = (spans) => {
    const every = Math.ceil(spans.length / MAX_POINTS);
    if (every <= 1) return spans;
    const found = [];
    for (let k = 0; k < spans.length; k += every) found.push(spans.slice(k, k + every).reduce(join));
    return found;
  };
  const join = (a, b) => {
    const rows = new Map(a.rows.map((row) => [row[0], row]));
    for (const row of b.rows) {
      const old = rows.get(row[0]);
      rows.set(row[0], old ? row.map((v, k) => (k === 0 ? v : k === 3 ? Math.max(v, old[k]) : v + old[k])) : row);
    }
    const more = {};
    for (const key of ["raw", "wire", "gradients_raw", "gradients_wire"]) more[key] = (a[key] || 0) + (b[key] || 0);
    const over = a.over + b.over;
    for (const key of ["cpu", "memory", "trainer_memory", "others_memory", "ready"]) {
      const [x, y] = [a[key] ?? null, b[key] ?? null];
      more[key] = x === null ? y : y === null ? x : (x * a.over + y * b.over) / over;
    }
    return { ...a, ...more, long: b.at + b.long - a.at, over, rows: [...rows.values()] };
  };

  // ---- parts of the page

  const make = (tag, text, kind) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const swatch = (color) => {
    const made = make("span", undefined, "swatch");
    made.style.background = color;
    return made;
  };
  // heads: of a column of numbers it begins with #. A cell may be an element.
  const table = (place, heads, rows) => {
    const made = make("table"), head = make("tr"), body = make("tbody");
    for (const word of heads) {
      const cell = make("th", word.replace(/^#/, ""), word[0] === "#" ? "n" : "");
      cell.scope = "col";
      head.append(cell);
    }
    for (const row of rows) {
      const line = make("tr");
      row.forEach((value, k) => {
        const cell = make("td", undefined, heads[k][0] === "#" ? "n" : "");
        cell.dataset.head = heads[k].replace(/^#/, "");
        cell.append(value instanceof Node ? value : String(value));
        line.append(cell);
      });
      body.append(line);
    }
    const top = make("thead");
    top.append(head);
    made.append(top, body);
    place.replaceChildren(made);
  };
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const LINES = ["compute", "data", "copy", "communication", "own", "other", "lost", "unseen"];

  // series: [{label, color, fill}]; data: times, then a list of values a series; said: what a screen reader says of it.
  const chart = (id, series, data, said, options = {}) => {
    const place = element(id), key = JSON.stringify([series, options.max]), old = state.charts[id];
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", said);
    if (old && old.key === key) {
      old.plot.setData(data);
      return;
    }
    if (old) old.plot.destroy();
    const axis = { stroke: color("dim"), grid: { stroke: color("line"), width: 0.5 }, ticks: { stroke: color("line"), width: 0.5 } };
    const plot = new uPlot({
      width: place.clientWidth, height: 180, legend: { live: false, show: series.length > 1 },
      cursor: { drag: { x: true, y: false } },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, options.max || Math.max(high, 1e-9) * 1.05] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map(options.across || clock) },
        { ...axis, size: 64, values: (_, ticks) => ticks.map(options.words || ((v) => number(v, 2))) },
      ],
      series: [{}, ...series.map((s) => ({ label: s.label, stroke: s.color, fill: s.fill, width: 1.5, points: { show: false }, spanGaps: false, ...options.drawn }))],
      bands: options.bands,
    }, data, place);
    state.charts[id] = { plot, key };
  };

  const loadersShown = () => state.now.loaders.slice(0, MAX_LINES);
  const byLoader = (spans, of) => loadersShown().map((loader) => spans.map((span) => of(span, loader.number)));
  const seriesOf = () => loadersShown().map((loader, k) => ({ label: loader.name, color: color(LINES[k % LINES.length]) }));

  const drawNow = () => {
    const { now } = state, last = now.last, split = splitOf(last), total = split.reduce((a, b) => a + b, 0);
    const samples = last.rows.reduce((sum, row) => sum + row[2], 0);
    const all = now.loaders.reduce((sum, loader) => sum + loader.num_samples, 0);
    const soFar = now.ended || held ? "" : " so far";
    const told = [
      ["samples a second", rate(samples / (last.over || 1))],
      ["waited for data", percent(total ? split[0] / total : null)],
      [`samples${soFar}`, number(all)],
      [`batches${soFar}`, number(now.loaders.reduce((sum, loader) => sum + loader.num_batches, 0))],
      ["batches ready", number(last.ready, 1)],
      ["cores in use", percent(last.cpu)],
      ["memory in use", bytes(last.memory)],
    ];
    if (now.gradients.wire_nbytes) told.push([`gradients${now.gradients.scheme ? `, ${now.gradients.scheme}` : ""}`, bytes(now.gradients.wire_nbytes)]);
    if (now.remembered) told.push(["remembered", bytes(now.remembered.used_nbytes)]);
    element("now").replaceChildren(...told.filter(([, value]) => !held || value !== "-").map(([name, value]) => {
      const made = make("div");
      made.append(make("dt", name), make("dd", value));
      return made;
    }));
    const bar = make("div", undefined, "bar");
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", `${held ? "the whole run" : "the last ten seconds"}: ${PARTS.map((part, k) => `${WORDS[part]} ${percent(total ? split[k] / total : 0)}`).join(", ")}`);
    PARTS.forEach((part, k) => {
      const piece = make("span");
      piece.style.background = color(part);
      piece.style.width = `${total ? (100 * split[k]) / total : 0}%`;
      piece.title = WORDS[part];
      bar.append(piece);
    });
    element("now-split").replaceChildren(bar);
  };

  const drawCharts = (spans) => {
    const times = spans.map((span) => span.at + span.long), ends = spans[spans.length - 1];
    const words = loadersShown().map((loader) => `${loader.name} ${rate(rateOf(ends, loader.number))}`);
    chart("rate", seriesOf(), [times, ...byLoader(spans, rateOf)], `samples a second at the end: ${words.join(", ")}`);
    const waits = loadersShown().map((loader) => `${loader.name} ${percent(waitOf(ends, loader.number))}`);
    chart("wait", seriesOf(), [times, ...byLoader(spans, waitOf)], `share waited at the end: ${waits.join(", ")}`, { max: 1, words: percent });
    drawSplit(spans, times);
    if (spans.some((span) => span.ready !== undefined && span.ready !== null)) {
      element("ready-section").hidden = false;
      const ready = spans.map((span) => (span.ready === undefined ? null : span.ready));
      chart("ready", [{ label: "batches", color: color("compute") }], [times, ready], `batches ready at the end: ${number(ends.ready, 1)}`);
    }
    const flows = [["raw", "batches as they are", "compute"], ["wire", "batches, through sockets", "copy"],
      ["gradients_raw", "gradients as they are", "data"], ["gradients_wire", "gradients, through sockets", "communication"]];
    const flowing = flows.filter(([key]) => spans.some((span) => span[key]));
    if (flowing.length) {
      element("bytes-section").hidden = false;
      chart("bytes", flowing.map(([, label, name]) => ({ label, color: color(name) })),
        [times, ...flowing.map(([key]) => spans.map((span) => (span[key] === undefined ? null : span[key] / span.over)))],
        flowing.map(([key, label]) => `${label} ${bytes((ends[key] || 0) / ends.over)} a second`).join(", "), { words: bytes });
    }
    drawHost(spans, times);
    drawMemory(spans, times);
  };

  const drawHost = (spans, times) => {
    const ends = spans[spans.length - 1], all = state.now.host.all_nbytes || 1;
    element("host-section").hidden = ends.cpu === undefined;
    if (ends.cpu !== undefined) chart("host", [{ label: "cores", color: color("compute") }, { label: "memory", color: color("copy") }],
      [times, spans.map((span) => span.cpu ?? null), spans.map((span) => (span.memory === undefined ? null : span.memory / all))],
      `cores ${percent(ends.cpu)}, memory ${percent((ends.memory || 0) / all)}`, { max: 1, words: percent });
  };

  const drawMemory = (spans, times) => {
    const ends = spans[spans.length - 1], of = (key) => spans.map((span) => span[key] ?? null);
    element("memory-section").hidden = ends.others_memory === undefined;
    if (ends.others_memory !== undefined) chart("memory", [{ label: "training process", color: color("compute") }, { label: "workers and others", color: color("data") }],
      [times, of("trainer_memory"), of("others_memory")],
      `training process ${bytes(ends.trainer_memory || 0)}, workers and others ${bytes(ends.others_memory || 0)}`, { words: bytes });
  };

  // Areas above each other: a series is what it and those below it come to, the highest drawn first.
  const drawSplit = (spans, times) => {
    const splits = spans.map(splitOf);
    const sums = PARTS.map((_, k) => splits.reduce((sum, split) => sum + split[k], 0)), whole = sums.reduce((a, b) => a + b, 0);
    const used = PARTS.map((part, k) => k).filter((k) => sums[k] > 0.005 * whole);
    const series = [], data = [];
    for (let top = used.length - 1; top >= 0; top--) {
      const name = PARTS[used[top]];
      series.push({ label: WORDS[name], color: color(name), fill: color(name) });
      data.push(splits.map((split) => {
        const total = split.reduce((a, b) => a + b, 0);
        return total ? used.slice(0, top + 1).reduce((sum, k) => sum + split[k], 0) / total : null;
      }));
    }
    const words = used.map((k) => `${WORDS[PARTS[k]]} ${percent(sums[k] / whole)}`).join(", ");
    const told = PARTS.map((part) => state.now.loaders.reduce((sum, loader) => sum + loader.split[`${part}_s`], 0));
    const toldWhole = told.reduce((a, b) => a + b, 0);
    if (used.length) chart("split", series, [times, ...data], words, { max: 1, words: percent });
    table(element("split-table"), ["part", "#time", "#share"], PARTS.map((_, k) => k).filter((k) => told[k] > 0.005 * toldWhole).map((k) => {
      const name = make("span");
      name.append(swatch(color(PARTS[k])), WORDS[PARTS[k]]);
      return [name, `${number(told[k], 1)} s`, percent(told[k] / toldWhole)];
    }));
  };

  const rgb = (text) => {
    const hex = text.replace("#", ""), wide = hex.length === 3 ? [...hex].map((c) => c + c).join("") : hex;
    return [0, 2, 4].map((k) => parseInt(wide.slice(k, k + 2), 16));
  };

  // A row a worker, a column a span; one image, drawn at once, however many there are.
  const drawWorkers = (spans) => {
    const { places, workers } = state.now;
    if (!places.length) return;
    element("workers").hidden = false;
    const shown = spans.filter((span) => span.crew !== undefined).slice(-MAX_BAND_COLUMNS);
    if (!shown.length) return;
    const latest = shown[shown.length - 1].crew;
    const tenths = (c) => parseInt(c, 11); // of "-" and "x": NaN
    const count = (test) => [...latest].filter(test).length;
    const busy = count((c) => tenths(c) >= 5), lost = count((c) => c === "x"), waiting = count((c) => tenths(c) < 5);
    const words = `${number(places.length)} places: ${busy} busy, ${waiting} waiting, ${lost} lost; ${number(workers.lost)} workers lost so far`;
    element("workers-words").textContent = words;
    const canvas = element("bands"), tall = Math.max(1, Math.min(12, Math.floor(280 / places.length)));
    canvas.setAttribute("aria-label", `a band for each worker: ${words}`);
    canvas.width = Math.max(MIN_BAND_COLUMNS, shown.length);
    canvas.height = places.length * tall;
    canvas.style.height = `${Math.min(288, places.length * 14)}px`;
    const image = new ImageData(canvas.width, canvas.height), pixels = new Uint32Array(image.data.buffer);
    const paint = new Map(), idle = rgb(color("idle")), full = rgb(color("compute"));
    const packed = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
    for (let k = 0; k <= 10; k++) paint.set(k.toString(11), packed(idle.map((v, c) => Math.round(v + ((full[c] - v) * k) / 10))));
    paint.set("x", packed(rgb(color("lost"))));
    const first = canvas.width - shown.length;
    shown.forEach((span, x) => {
      for (let y = 0; y < places.length; y++) {
        const ink = paint.get(span.crew[y]);
        if (ink === undefined) continue;
        for (let z = 0; z < tall; z++) pixels[(y * tall + z) * canvas.width + first + x] = ink;
      }
    });
    canvas.getContext("2d").putImageData(image, 0, 0);
    const key = element("bands-key");
    key.replaceChildren(...[["compute", "busy"], ["idle", "waiting"], ["lost", "lost"]].map(([name, word]) => {
      const made = make("span");
      made.append(swatch(color(name)), word);
      return made;
    }));
    if (document.querySelector("#workers details").open) {
      const where = new Map(state.now.loaders.map((loader) => [loader.number, loader.name]));
      table(element("workers-table"), ["loader", "worker", "where", "now"], places.map(([loader, worker, away], k) => {
        const c = latest[k];
        const at = c === "x" ? "lost" : c === undefined || c === "-" ? "not there" : `${tenths(c) * 10} % busy`;
        return [where.get(loader) || "", worker, away ? "another machine" : "here", at];
      }));
    }
  };

  const drawTables = () => {
    const { now } = state;
    const show = (id, heads, rows) => {
      element(`${id}-section`).hidden = !rows.length;
      if (rows.length) table(element(id), heads, rows);
    };
    table(element("loaders"), ["loader", "#batches", "#samples", "#waited", "#all else", "made by"], now.loaders.map((loader) => [
      loader.name, number(loader.num_batches), number(loader.num_samples), `${number(loader.wait_s, 1)} s`, `${number(loader.busy_s, 1)} s`,
      [!loader.offloaded ? `plain PyTorch: ${loader.reasons.join("; ") || "asked to"}`
        : loader.chains ? `${loader.chains} worker${loader.chains > 1 ? "s" : ""}` : "other cores", ...loader.notes].join("; "),
    ]));
    const tookHeads = ["#learning took", "#proving", "#writing", "#saved"];
    show("remembered", ["place", "phase", "#found", "#compared", "#stored", ...tookHeads, "left alone because"], (now.remembered ? now.remembered.places : []).map((p) => [
      p.place, p.phase, number(p.num_hits), number(p.num_checked), bytes(p.stored_nbytes),
      ...[p.learn_s, p.prove_s, p.write_s, p.saved_s].map((s) => `${number(s, 1)} s`), p.why,
    ]));
    show("storage", ["machines", "#from the origin", "#from each other", "#found in the cache", "#requests", "#tried again", "#workers waited"], now.storage.map((s) => [
      s.machines === "here" ? "this one" : "others", bytes(s.remote_nbytes), bytes(s.peer_nbytes), bytes(s.cache_nbytes),
      number(s.num_requests), number(s.num_retries), `${number(s.wait_s, 1)} s`,
    ]));
    const made = (now.fast || []).reduce((sum, f) => sum + f.num_made, 0);
    element("fast-words").textContent = `${number(made)} results in ${number((now.fast || []).length)} ways`;
    show("fast", ["way", "#results", "#compared", "left alone because"], (now.fast || []).map((f) => [f.place, number(f.num_made), number(f.num_checked), f.why]));
    const where = new Map(now.loaders.map((loader) => [loader.number, loader.name]));
    show("slow", ["at", "loader", "#batch", "what took it"], now.slow.toReversed().map((s) => [clock(s.at_s), where.get(s.number) || "", number(s.batch), s.why]));
    show("ranks", ["#rank", "host", "#batches", "#samples a second", "#waited for data", "#waited for ranks", "state"], now.ranks.map((r) => {
      const total = Object.values(r.split).reduce((a, b) => a + b, 0) || 1;
      return [r.rank, r.host, number(r.num_batches), rate(r.rate), percent(r.split.data_s / total), percent(r.split.communication_s / total), r.ended || "running"];
    }));
    show("slowest", ["at", "loader", "#batch", "#took", "#of it waited", "what took it"], (now.slowest || []).map((s) => [
      clock(s.at_s), where.get(s.number) || "", number(s.batch), seconds(s.step_s), seconds(s.wait_s), [inWords(s.split), s.why].filter(Boolean).join("; "),
    ]));
    const given = Object.entries(now.about.settings || {});
    if (given.length) table(element("settings"), ["setting", "value", "from"], given.map(([name, value]) => [name, String(value), (now.about.origins || {})[name] || ""]));
    else element("settings").textContent = "All as they are by default.";
    element("said-section").hidden = !now.said.length;
    element("said").replaceChildren(...now.said.map((each) => make("li", `${clock(each.at_s)}: ${each.text}`)));
  };

  const drawState = () => {
    const { now } = state, place = element("state"), more = now.loaders.length - MAX_LINES;
    element("more").textContent = more > 0 ? `The charts show the first ${MAX_LINES} loaders; ${more} more are in the table below.` : "";
    const words = state.failedSince ? "no answer from the run any more: it has ended, or its machine cannot be reached"
      : now.ended ? `ended: ${now.ended}, after ${clock(now.run_s)}` : `running, ${clock(now.run_s)}`;
    place.className = state.failedSince ? "gone" : "";
    // Of a clock that goes on nobody wants to hear each second; of an end, and of a page that is gone, everybody.
    place.setAttribute("aria-live", now.ended || state.failedSince ? "polite" : "off");
    if (place.textContent !== words) place.textContent = words;
    if (!held) document.title = `stoker: ${now.ended ? "ended" : "running"}`;
    element("command").textContent = (now.about.command || []).join(" ");
  };

  // What is known only once a run is over.
  const drawEnd = () => {
    const { now } = state, steps = now.steps || [];
    element("now-heading").textContent = `The run as a whole: ${now.name}`;
    element("summary").textContent = now.summary;
    element("hints").replaceChildren(...now.hints.map((hint) => make("li", hint)));
    document.querySelector("#end-section h3").hidden = !now.hints.length;
    element("end-section").hidden = false;
    element("steps-section").hidden = !steps.length;
    if (!steps.length) return;
    const all = steps.reduce((sum, [, , num]) => sum + num, 0), ends = [seconds(steps[0][0]), seconds(steps[steps.length - 1][1])];
    chart("steps", [{ label: "steps", color: color("compute"), fill: color("compute") }],
      [steps.map(([low]) => Math.log2(low)), steps.map(([, , num]) => num)], `${number(all)} step${all > 1 ? "s" : ""}, from ${ends[0]} to ${ends[1]}`,
      { across: (v) => seconds(2 ** v), words: number, drawn: { paths: uPlot.paths.bars({ size: [0.9, 40], align: 1 }) } });
  };

  // Of the runs of a report the one with this number.
  const showRun = (k) => {
    for (const each of Object.values(state.charts)) each.plot.destroy();
    [state.spans, state.now, state.charts] = [held.runs[k].spans, held.runs[k].now, {}];
    const place = element("runs");
    place.hidden = held.runs.length < 2;
    place.replaceChildren(...held.runs.map((run, other) => {
      const made = make("button", run.now.name);
      made.setAttribute("aria-pressed", String(other === k));
      made.addEventListener("click", () => showRun(other));
      return made;
    }));
    element("compared-section").hidden = !held.compared;
    if (held.compared) {
      element("compared-heading").textContent = held.heading;
      table(element("compared"), held.compared.heads, held.compared.rows);
    }
    drawTimed();
  };

  const draw = () => {
    if (!state.now || !state.now.about) {
      if (state.why) element("state").textContent = state.why;
      return;
    }
    drawState();
    const { last, ended } = state.now, isCoarse = state.spans.length > 0 && state.spans[state.spans.length - 1].long > last.long;
    const all = isCoarse && !ended && last.long > 0 ? [...state.spans, last] : state.spans;
    drawNow();
    drawTables();
    if (held) drawEnd();
    if (all.length) {
      drawCharts(joined(all));
      drawWorkers(all);
    }
  };

  // Has it all laid out and painted, too, which the browser would do a moment later: all that an update costs.
  const drawTimed = () => {
    const began = performance.now();
    draw();
    document.body.getBoundingClientRect();
    const ended = performance.now();
    performance.measure("stoker: drawn", { start: began, end: ended });
    const data = document.documentElement.dataset; // for whoever waits for an update
    data.spans = state.spans.length;
    data.updates = Number(data.updates || 0) + 1;
  };

  const ask = async () => {
    try {
      const answer = await fetch(`data?since=${state.spans.length}`, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
      if (!answer.ok) throw new Error((await answer.text()).trim());
      const told = await answer.json();
      state.spans.length = told.first;
      for (const span of told.spans) state.spans.push(span);
      state.now = told.now;
      state.failedSince = null;
    } catch (error) {
      state.failedSince = state.failedSince || performance.now();
      state.why = `no answer: ${error.message}`;
    }
    if (state.now && state.now.about) drawTimed();
    else draw();
    const isLong = state.failedSince && performance.now() - state.failedSince > PATIENCE_MS; // a tunnel, a laptop that sleeps
    if (!state.now || !state.now.ended) setTimeout(ask, isLong ? LATER_MS : EVERY_MS);
  };

  const redraw = () => {
    for (const each of Object.values(state.charts)) each.plot.destroy();
    state.charts = {};
    draw();
  };
  addEventListener("resize", () => {
    for (const [id, each] of Object.entries(state.charts)) each.plot.setSize({ width: element(id).clientWidth, height: 180 });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.querySelector("#workers details").addEventListener("toggle", draw);
  if (held) showRun(0);
  else ask();
})();
