// Tables sort by the column that is clicked: numbers by what they are with their units, largest first.
const units = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, min: 6e10, h: 3.6e12, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
const value = (text) => {
  const [, number, unit] = text.replace(/,/g, "").match(/^(-?[\d.]+)\s*([^\s\d]*)/) ?? [];
  return number === undefined ? NaN : number * (units[unit] ?? (/^[kMGTP](B|FLOP)/.test(unit) ? units[unit[0]] : 1));
};
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const th = button.parentElement, column = th.cellIndex, body = th.closest("table").tBodies[0];
    const numbers = th.className === "right";
    const down = th.ariaSort ? th.ariaSort === "ascending" : numbers;
    for (const other of th.parentElement.cells) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
    const text = (row) => row.cells[column].textContent;
    const order = (a, b) => {
      if (!numbers) return text(a).localeCompare(text(b));
      const [x, y] = [value(text(a)), value(text(b))];
      // What is not known stands last.
      return isNaN(x) || isNaN(y) ? (isNaN(x) - isNaN(y)) * (down ? -1 : 1) : x - y;
    };
    body.append(...[...body.rows].sort((a, b) => (down ? order(b, a) : order(a, b))));
  });
}
// Tables are copied as CSV, with what a search leaves of them.
const csv = (table) => {
  const cell = ({ textContent, className }) => {
    // A name that begins as a formula does stays a name in spreadsheets. Figures may be negative.
    const text = className !== "right" && /^\s*[=+\-@]/.test(textContent) ? `'${textContent}` : textContent;
    return /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  const rows = [...table.rows].filter((row) => !row.hidden);
  return rows.map((row) => [...row.cells].map(cell).join(",")).join("\n") + "\n";
};
for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const said = button.textContent;
    try {
      await navigator.clipboard.writeText(csv(button.previousElementSibling.querySelector("table")));
      button.textContent = "copied";
    } catch {
      button.textContent = "this browser does not let a page copy";
    }
    setTimeout(() => (button.textContent = said), 1500);
  });
}
// A search leaves the rows of tables that have it, and marks what has it on the timeline.
const search = document.querySelector("nav input"), found = document.querySelector("nav output");
const rows = [...document.querySelectorAll("main tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
const look = () => {
  const wanted = search.value.trim().toLowerCase();
  let shown = 0;
  for (const [row, text] of rows) {
    row.hidden = !!wanted && !text.includes(wanted);
    shown += !row.hidden;
    if (wanted && !row.hidden) row.closest("details")?.setAttribute("open", "");
  }
  const timelines = window.stepscope?.timelines.map((timeline) => timeline.search(wanted)) ?? [];
  found.textContent = wanted ? [`${shown} rows`, ...timelines].filter((part) => part).join(", ") : "";
};
search.addEventListener("input", look);
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") window.stepscope?.timelines.forEach((timeline) => timeline.next(event.shiftKey));
  if (event.key === "Escape") (search.value = ""), look();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || /^(INPUT|SELECT)$/.test(event.target.tagName)) return;
  event.preventDefault();
  search.focus();
});
// A flame graph zooms into the box that is clicked. What is above it fills the width, what is beside it is gone.
for (const figure of document.querySelectorAll("figure[data-flame]")) {
  const graph = figure.querySelector("svg"), touched = figure.querySelector(".touched"), width = graph.viewBox.baseVal.width;
  const boxes = [...graph.children].map((box) => {
    const [from, wide] = [+box.getAttribute("x"), +box.getAttribute("width")];
    return { box, from, to: from + wide };
  });
  const zoom = ({ from, to }) => {
    const place = (at) => Math.min(Math.max(((at - from) / (to - from)) * width, 0), width);
    for (const { box, from: left, to: right } of boxes) {
      box.setAttribute("x", place(left));
      box.setAttribute("width", place(right) - place(left));
    }
  };
  // Without a mouse: arrows go from box to box, Enter zooms, Escape shows all of it.
  let current = 0;
  const choose = (index) => {
    boxes[current].box.classList.remove("current");
    boxes[(current = index)].box.classList.add("current");
    touched.textContent = boxes[current].box.querySelector("title").textContent;
  };
  const row = ({ box }) => +box.getAttribute("y"), middle = ({ from, to }) => (from + to) / 2;
  const nearest = (isWanted) => {
    const here = boxes[current];
    const apart = (box) => Math.abs(middle(box) - middle(here)) + 1e4 * Math.abs(row(box) - row(here));
    const others = boxes.filter((box) => isWanted(box, here)).sort((one, other) => apart(one) - apart(other));
    if (others.length) choose(boxes.indexOf(others[0]));
  };
  const keys = {
    ArrowLeft: () => nearest((box, here) => row(box) === row(here) && box.to <= here.from),
    ArrowRight: () => nearest((box, here) => row(box) === row(here) && box.from >= here.to),
    ArrowUp: () => nearest((box, here) => row(box) < row(here) && box.from <= here.from && box.to >= here.to),
    ArrowDown: () => nearest((box, here) => row(box) > row(here) && box.from >= here.from && box.to <= here.to),
    Enter: () => zoom(boxes[current]),
    Escape: () => (zoom(boxes[0]), choose(0)),
  };
  graph.tabIndex = 0;
  graph.addEventListener("focus", () => choose(current));
  graph.addEventListener("keydown", (event) => {
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  const pointed = ({ target }) => boxes.find(({ box }) => box === target.closest("svg"));
  graph.addEventListener("click", (event) => [pointed(event)].filter((box) => box).forEach(zoom));
  graph.addEventListener("pointerover", (event) => {
    const box = pointed(event)?.box;
    if (box) touched.textContent = box.querySelector("title").textContent;
  });
}
