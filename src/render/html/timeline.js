// A timeline that can be moved and zoomed, on a canvas. What there is comes packed: for each lane its spans, each as the time
// since the one before it began, its length, what it is, and how many it stands for beside itself.
const unpacked = async (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

const lanesOf = (about, bytes) => {
  let at = 0;
  const number = () => {
    let [value, scale] = [0, 1];
    for (;;) {
      const byte = bytes[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
  };
  return about.lanes.map((lane) => {
    const [start, end] = [new Float64Array(lane.spans), new Float64Array(lane.spans)];
    const [kind, count] = [new Uint32Array(lane.spans), new Uint32Array(lane.spans)];
    let [last, longest] = [0, 0];
    for (let span = 0; span < lane.spans; span++) {
      start[span] = last += number();
      const length = number();
      end[span] = last + length;
      longest = Math.max(longest, length);
      kind[span] = number();
      count[span] = 1 + number();
    }
    return { ...lane, start, end, kind, count, longest };
  });
};

const bytesText = (bytes) => {
  const scale = bytes >= 1e12 ? [1e12, "TB"] : bytes >= 1e9 ? [1e9, "GB"] : bytes >= 1e6 ? [1e6, "MB"] : bytes >= 1e3 ? [1e3, "kB"] : [1, "B"];
  return `${+(bytes / scale[0]).toFixed(1)} ${scale[1]}`;
};
const timeText = (ns) => {
  const scale = Math.abs(ns) >= 1e9 ? [1e9, "s"] : Math.abs(ns) >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
  return `${+(ns / scale[0]).toFixed(3)} ${scale[1]}`;
};
// Without namespaces, parameters and templates: what a kernel is called where there is little room.
const short = (name) => name.replace(/[<(].*$/s, "").replace(/^.*(::|\s)(?=\w)/s, "") || name;

const HEAD = 40, RANK = 20, LANE = 20, THIN = 13, MEMORY = 90, GAP = 4;

class Timeline {
  constructor(figure, about, bytes) {
    this.about = about;
    this.figure = figure;
    this.lanes = lanesOf(about, bytes);
    this.canvas = figure.querySelector("canvas");
    this.pen = this.canvas.getContext("2d");
    this.tip = figure.querySelector(".tip");
    this.touched = figure.querySelector(".touched");
    this.folded = new Set(about.folded);
    this.view = [...about.open];
    this.wanted = "";
    this.arrange();
    this.listen();
    this.tellStep();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // Which rows there are, from top to bottom.
  arrange() {
    let y = HEAD;
    this.rows = [];
    const add = (row, height) => {
      this.rows.push({ ...row, y, height });
      y += height + (row.lane === undefined ? 0 : 2);
    };
    const lanes = this.lanes.map((lane, index) => [lane, index]);
    for (const [lane, index] of lanes) if (lane.rank === null) add({ lane: index }, LANE);
    for (const [rank, name] of this.about.ranks) {
      y += GAP;
      add({ rank, name }, RANK);
      const isFolded = this.folded.has(rank);
      for (const [lane, index] of lanes) {
        if (lane.rank === rank && !(isFolded && lane.thin)) add({ lane: index }, lane.thin || isFolded ? THIN : LANE);
      }
    }
    if (this.about.memory) {
      y += GAP;
      add({ memory: true, name: this.about.memory.name }, MEMORY);
    }
    this.height = y + GAP;
    this.canvas.style.height = `${this.height}px`;
  }

  get names() {
    return Math.min(170, this.canvas.clientWidth / 4);
  }
  x(time) {
    return this.names + ((time - this.view[0]) / (this.view[1] - this.view[0])) * (this.canvas.clientWidth - this.names);
  }
  time(x) {
    return this.view[0] + ((x - this.names) / (this.canvas.clientWidth - this.names)) * (this.view[1] - this.view[0]);
  }

  show(from, to) {
    const least = 100, all = this.about.length;
    let wide = Math.min(Math.max(to - from, least), all);
    from = Math.min(Math.max(from, 0), all - wide);
    this.view = [from, from + wide];
    this.tellStep();
    this.draw();
  }
  // The list of steps says which one is seen, if it is one, or all of it.
  tellStep() {
    const jump = this.figure.querySelector("select"), [from, to] = this.view;
    if (!jump) return;
    const isSeen = (start, end) => Math.abs(start - from) < 1 && Math.abs(end - to) < 1;
    const step = this.about.steps.find(([, start, end]) => isSeen(start, end));
    if (isSeen(0, this.about.length)) jump.value = "";
    else if (step) jump.value = step[0];
    else jump.selectedIndex = -1;
  }
  zoom(factor, around) {
    const [from, to] = this.view;
    this.show(around - (around - from) * factor, around + (to - around) * factor);
  }
  pan(share) {
    const [from, to] = this.view, by = (to - from) * share;
    this.show(from + by, to + by);
  }

  matches(kind) {
    return !this.wanted || this.found[kind];
  }
  search(text) {
    this.wanted = text.toLowerCase();
    this.found = this.about.kinds.map((kind) => this.about.names[kind.name].toLowerCase().includes(this.wanted));
    let [spans, time] = [0, 0];
    this.hits = [];
    if (this.wanted) {
      this.lanes.forEach((lane, index) => {
        if (lane.thin || lane.rank === null) return;
        for (let span = 0; span < lane.kind.length; span++) {
          if (!this.found[lane.kind[span]]) continue;
          spans += lane.count[span];
          time += lane.end[span] - lane.start[span];
          this.hits.push([lane.start[span], index, span]);
        }
      });
      this.hits.sort((one, other) => one[0] - other[0]);
    }
    this.draw();
    return this.wanted ? `${spans} on the timeline, ${timeText(time)}` : "";
  }
  next(back) {
    if (!this.hits?.length) return;
    const now = this.chosen ? this.lanes[this.chosen[0]].start[this.chosen[1]] : back ? Infinity : -1;
    const hit = back
      ? this.hits.findLast(([start]) => start < now) ?? this.hits.at(-1)
      : this.hits.find(([start]) => start > now) ?? this.hits[0];
    this.choose(hit[1], hit[2], true);
  }

  draw() {
    const { canvas, pen } = this, scale = devicePixelRatio || 1, width = canvas.clientWidth;
    if (!width) return;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(this.height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(this.height * scale);
    }
    const style = getComputedStyle(document.documentElement);
    this.ink = Object.fromEntries(["text", "quiet", "page", "box", "grid", "line"].map((name) => [name, style.getPropertyValue(`--${name}`)]));
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, this.height);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.drawAxis(width);
    for (const row of this.rows) {
      pen.textAlign = "left";
      if (row.lane !== undefined) this.drawLane(row, width);
      else if (row.memory) this.drawMemory(row, width);
      else {
        pen.fillStyle = this.ink.box;
        pen.fillRect(0, row.y, width, row.height);
        pen.fillStyle = this.ink.text;
        pen.fillText(`${this.folded.has(row.rank) ? "▸" : "▾"} ${row.name}`, 6, row.y + row.height / 2);
      }
    }
    if (this.drag?.to !== undefined && !this.drag.pans) {
      const [left, right] = [this.drag.from, this.drag.to].sort((one, other) => one - other);
      pen.fillStyle = "#3b7dc440";
      pen.fillRect(left, 0, right - left, this.height);
    }
  }

  drawAxis(width) {
    const { pen } = this, [from, to] = this.view;
    const rough = ((to - from) * 110) / (width - this.names), power = 10 ** Math.floor(Math.log10(rough));
    const tick = [1, 2, 5, 10].map((digit) => digit * power).find((tick) => tick >= rough);
    pen.textAlign = "center";
    for (let time = Math.ceil(from / tick) * tick; time <= to; time += tick) {
      const x = this.x(time);
      pen.fillStyle = this.ink.grid;
      pen.fillRect(x, 14, 1, this.height);
      pen.fillStyle = this.ink.quiet;
      if (x < width - 20) pen.fillText(timeText(time), x, 7);
    }
    pen.textAlign = "left";
    pen.fillStyle = this.ink.quiet;
    if (this.about.steps.length) pen.fillText("steps", 6, 28);
    this.about.steps.forEach(([step, begin, end], index) => {
      const [left, right] = [Math.max(this.x(begin), this.names), Math.min(this.x(end), width)];
      if (right <= left) return;
      pen.fillStyle = index % 2 ? this.ink.grid : this.ink.line;
      pen.fillRect(left, 19, right - left, 18);
      pen.fillStyle = this.ink.text;
      const words = right - left > 60 ? `step ${step}` : `${step}`;
      if (pen.measureText(words).width < right - left - 4) pen.fillText(words, left + 3, 28);
    });
  }

  // Spans that are narrower than a pixel share it: the part of it that they fill is how dense it is drawn.
  drawLane(row, width) {
    const { pen, about } = this, lane = this.lanes[row.lane], { start, end, kind } = lane, [from, to] = this.view;
    pen.fillStyle = this.ink.quiet;
    const name = this.folded.has(lane.rank) ? "" : lane.name;
    if (name) pen.fillText(name, 18, row.y + row.height / 2, this.names - 24);
    const pixel = (to - from) / (width - this.names), left = this.names;
    const first = lowest(start, from - lane.longest);
    let [at, filled, most, shown] = [-1, 0, 0, 0];
    const dot = () => {
      if (at < 0 || !filled) return;
      pen.globalAlpha = (0.25 + 0.75 * Math.min(filled, 1)) * (this.matches(shown) ? 1 : 0.12);
      pen.fillStyle = about.kinds[shown].colour;
      pen.fillRect(left + at, row.y, 1, row.height);
      filled = most = 0;
    };
    const labels = [];
    for (let span = first; span < start.length && start[span] < to; span++) {
      if (end[span] < from) continue;
      const x = (start[span] - from) / pixel, wide = (end[span] - start[span]) / pixel;
      if (wide < 1) {
        const here = Math.max(Math.floor(x), 0);
        if (here !== at) {
          dot();
          at = here;
        }
        filled += Math.max(wide, 0.02);
        if (wide >= most) [most, shown] = [wide, kind[span]];
        continue;
      }
      dot();
      at = -1;
      const begin = Math.max(x, 0), long = Math.min(x + wide, width - left) - begin;
      pen.globalAlpha = this.matches(kind[span]) ? 1 : 0.12;
      pen.fillStyle = about.kinds[kind[span]].colour;
      pen.fillRect(left + begin, row.y, Math.max(long - (long > 3 ? 0.5 : 0), 0.5), row.height);
      if (long > 36 && row.height >= 14) labels.push([span, left + begin, long]);
    }
    dot();
    pen.globalAlpha = 1;
    pen.fillStyle = "#10141a";
    for (const [span, x, long] of labels) {
      const { name, says } = about.kinds[kind[span]], words = says ? short(about.names[name]) : about.names[name];
      const room = Math.floor((words.length * (long - 6)) / pen.measureText(words).width);
      if (room > 3) pen.fillText(words.length > room ? `${words.slice(0, room - 2)}…` : words, x + 3, row.y + row.height / 2);
    }
    if (this.chosen?.[0] === row.lane) {
      const span = this.chosen[1];
      pen.strokeStyle = this.ink.text;
      pen.lineWidth = 2;
      const x = Math.max(this.x(start[span]), this.names);
      if (this.x(end[span]) >= this.names) pen.strokeRect(x, row.y - 1, Math.max(this.x(end[span]) - x, 2), row.height + 2);
    }
  }

  drawMemory(row, width) {
    const { pen } = this, { times, parts, most } = this.about.memory;
    const bottom = row.y + row.height, high = (bytes) => (bytes / most) * (row.height - 4);
    pen.fillStyle = this.ink.quiet;
    pen.fillText(row.name, 6, row.y + 10, this.names - 12);
    pen.fillText(bytesText(most), 6, row.y + 26, this.names - 12);
    pen.save();
    pen.beginPath();
    pen.rect(this.names, row.y, width - this.names, row.height);
    pen.clip();
    let below = times.map(() => 0);
    for (const part of parts) {
      const upon = below.map((level, point) => level + part.bytes[point]);
      pen.beginPath();
      times.forEach((time, point) => {
        const [x, next] = [this.x(time), this.x(times[point + 1] ?? this.about.length)];
        pen.lineTo(x, bottom - high(upon[point]));
        pen.lineTo(next, bottom - high(upon[point]));
      });
      for (let point = times.length - 1; point >= 0; point--) {
        const [x, next] = [this.x(times[point]), this.x(times[point + 1] ?? this.about.length)];
        pen.lineTo(next, bottom - high(below[point]));
        pen.lineTo(x, bottom - high(below[point]));
      }
      pen.fillStyle = part.colour;
      pen.fill();
      below = upon;
    }
    pen.restore();
  }

  rowAt(y) {
    return this.rows.find((row) => y >= row.y - 1 && y < row.y + row.height + 1);
  }
  spanAt(x, y) {
    const row = this.rowAt(y);
    if (row?.lane === undefined || x < this.names) return;
    const lane = this.lanes[row.lane], time = this.time(x), near = Math.abs(this.time(x + 3) - time);
    let best;
    for (let span = lowest(lane.start, time - near - lane.longest); span < lane.start.length && lane.start[span] <= time + near; span++) {
      const away = time < lane.start[span] ? lane.start[span] - time : Math.max(time - lane.end[span], 0);
      if (away <= near && (!best || away <= best[0])) best = [away, span];
    }
    return best && [row.lane, best[1]];
  }
  stepAt(x, y) {
    if (y < 19 || y > 37 || x < this.names) return;
    const time = this.time(x);
    return this.about.steps.find(([, begin, end]) => begin <= time && time < end);
  }

  words([index, span]) {
    const lane = this.lanes[index], { about } = this, kind = about.kinds[lane.kind[span]], length = lane.end[span] - lane.start[span];
    const rate = (amount, unit) => (length ? ` (${bytesText((amount / length) * 1e9).replace(/B$/, "")}${unit})` : "");
    const many = lane.count[span];
    return [
      about.names[kind.name],
      kind.says,
      `${timeText(length)}, from ${timeText(lane.start[span])}`,
      many > 1 ? `${many} spans, drawn as one` : "",
      many === 1 && kind.bytes ? `${bytesText(kind.bytes)}${rate(kind.bytes, "B/s")}` : "",
      many === 1 && kind.flops ? `${bytesText(kind.flops).replace(/B$/, "FLOP")}${rate(kind.flops, "FLOP/s")}` : "",
      [lane.rank === null ? "" : `rank ${lane.rank}`, lane.name].filter((part) => part).join(", "),
    ].filter((part) => part);
  }
  memoryWords(x) {
    const { times, parts, name } = this.about.memory, time = this.time(x), point = lowest(times, time + 1e-9) - 1;
    if (point < 0) return [name];
    const filled = parts.filter((part) => part.bytes[point]).map((part) => `${part.name} ${bytesText(part.bytes[point])}`);
    return [`${name}: ${bytesText(parts.reduce((sum, part) => sum + part.bytes[point], 0))}`, ...filled.reverse()];
  }

  choose(lane, span, moves) {
    this.chosen = [lane, span];
    this.touched.textContent = this.words(this.chosen).join(" · ");
    const { rank, start, end } = this.lanes[lane];
    if (this.folded.delete(rank)) this.arrange();
    if (moves) {
      const wide = Math.max((end[span] - start[span]) * 4, (this.view[1] - this.view[0]) / 4, 1000);
      const middle = (start[span] + end[span]) / 2;
      this.show(middle - wide / 2, middle + wide / 2);
    } else this.draw();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      this.drag = { from: event.offsetX, view: [...this.view], pans: event.shiftKey || event.pointerType === "touch" };
    });
    canvas.addEventListener("pointermove", (event) => {
      this.pointer = event.offsetX;
      const { drag } = this;
      if (drag && Math.abs(event.offsetX - drag.from) > 4) drag.to = event.offsetX;
      if (drag?.to !== undefined) {
        if (drag.pans) {
          const by = ((drag.from - drag.to) / (canvas.clientWidth - this.names)) * (drag.view[1] - drag.view[0]);
          this.show(drag.view[0] + by, drag.view[1] + by);
        } else this.draw();
      }
      this.point(event);
    });
    canvas.addEventListener("pointerup", (event) => {
      const { drag } = this;
      this.drag = undefined;
      if (!drag) return;
      if (drag.to === undefined) this.click(event.offsetX, event.offsetY);
      else if (!drag.pans) this.show(...[drag.from, drag.to].map((x) => this.time(Math.max(x, this.names))).sort((one, other) => one - other));
    });
    canvas.addEventListener("pointercancel", () => (this.drag = undefined));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    canvas.addEventListener("dblclick", () => this.show(0, this.about.length));
    canvas.addEventListener("wheel", (event) => {
      // Without a key the page scrolls; a touchpad that moves sideways moves the timeline.
      if (event.ctrlKey || event.metaKey) this.zoom(1.0015 ** event.deltaY, this.time(event.offsetX));
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / canvas.clientWidth);
      else return;
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const middle = this.time(Math.max(this.pointer ?? canvas.clientWidth / 2, this.names));
      const keys = {
        w: () => this.zoom(0.7, middle), s: () => this.zoom(1 / 0.7, middle),
        a: () => this.pan(-0.2), d: () => this.pan(0.2), ArrowLeft: () => this.pan(-0.1), ArrowRight: () => this.pan(0.1),
        "+": () => this.zoom(0.7, middle), "-": () => this.zoom(1 / 0.7, middle),
        0: () => this.show(0, this.about.length), Home: () => this.show(0, this.about.length),
        n: () => this.next(false), N: () => this.next(true),
        f: () => this.chosen && this.choose(...this.chosen, true),
        Escape: () => ((this.chosen = undefined), (this.touched.textContent = ""), this.draw()),
      };
      const key = keys[event.key] ?? keys[event.key.toLowerCase()];
      if (!key) return;
      event.preventDefault();
      key();
    });
    for (const button of this.figure.querySelectorAll("button[data-key]")) {
      button.addEventListener("click", () => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: button.dataset.key })));
    }
    const jump = this.figure.querySelector("select");
    jump?.addEventListener("change", () => {
      const step = this.about.steps.find(([step]) => `${step}` === jump.value);
      if (step) this.show(step[1], step[2]);
      else this.show(0, this.about.length);
    });
  }
  click(x, y) {
    const row = this.rowAt(y), step = this.stepAt(x, y), hit = this.spanAt(x, y);
    this.canvas.focus({ preventScroll: true });
    if (row?.rank !== undefined) {
      if (!this.folded.delete(row.rank)) this.folded.add(row.rank);
      this.arrange();
      this.draw();
    } else if (step) this.show(step[1], step[2]);
    else if (hit) this.choose(...hit, false);
  }
  point({ offsetX: x, offsetY: y }) {
    const hit = this.spanAt(x, y), inMemory = this.rowAt(y)?.memory && x >= this.names;
    this.canvas.style.cursor = hit || this.stepAt(x, y) || this.rowAt(y)?.rank !== undefined ? "pointer" : "crosshair";
    const words = hit ? this.words(hit) : inMemory ? this.memoryWords(x) : undefined;
    this.tip.hidden = !words || !!this.drag?.to;
    if (!words) return;
    this.tip.replaceChildren(...words.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    const wide = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(Math.min(x + 14, this.canvas.clientWidth - wide - 4), 0)}px`;
    this.tip.style.top = `${this.canvas.offsetTop + y + 18}px`;
  }
}

// The first place of a sorted list whose value is not below another.
const lowest = (values, value) => {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
};

const opened = [...document.querySelectorAll("figure.timeline")].map(async (figure) => {
  const [about, spans] = figure.querySelectorAll("script");
  return new Timeline(figure, JSON.parse(about.textContent), await unpacked(spans.textContent));
});
Promise.all(opened).then((timelines) => {
  const [timeline] = timelines;
  if (!timeline) return;
  // For whoever wants to look closer, and for tests.
  window.stepscope = { timeline, timelines };
  for (const button of document.querySelectorAll("button[data-from]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const { from, to, rank } = button.dataset;
      timeline.figure.scrollIntoView({ block: "start" });
      if (rank !== undefined && timeline.folded.delete(+rank)) timeline.arrange();
      const wide = Math.max((to - from) * 0.1, 1000);
      timeline.show(from - wide, +to + wide);
      timeline.canvas.focus({ preventScroll: true });
    });
  }
  document.dispatchEvent(new Event("timeline"));
});
