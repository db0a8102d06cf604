// Draws the matrix of receivers and senders: a table of figures for few hosts, a drawing for many. Names come from the
// network: they are only ever put in as text.
"use strict";
(() => {
  const EVERY = 5000, PATIENCE = 8000, MOST_IN_TABLE = 16, WORST = 20;
  // shares of loss from which on a mark is larger
  const LEVELS = [0, 0.001, 0.01, 0.1];
  const by = id => document.getElementById(id), dark = matchMedia("(prefers-color-scheme: dark)");
  let fleet = null, chosen = null;

  const make = (name, text, parent) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };
  const share = (lost, due) => !lost ? "0 %" : `${Number((100 * lost / due).toPrecision(2))} %`;
  const level = (lost, due) => lost ? LEVELS.filter(least => lost / due >= least).length : 0;

  function cell(receiver, column) {
    const of = place => { const counts = receiver.counts[place]; return counts ? counts[column] : 0; };
    return { received: of(0), lost: of(1), late: of(2), duplicate: of(3), due: of(0) + of(1) };
  }

  function describe(receiver, column) {
    const one = cell(receiver, column), sender = fleet.senders[column];
    if (receiver.host === sender) return `${sender}: its own messages`;
    if (!one.due) return `${receiver.host} from ${sender}: nothing was received, nothing was lost`;
    const more = [one.late && `${one.late} late`, one.duplicate && `${one.duplicate} twice`].filter(Boolean).join(", ");
    const age = receiver.age_s ? `; ${Math.round(receiver.age_s)} s ago` : "";
    return `${receiver.host} from ${sender}: ${one.lost} of ${one.due} lost (${share(one.lost, one.due)})${more && ", " + more}${age}`;
  }

  function choose(row, column) {
    chosen = row === null ? null : [row, column];
    by("figures").textContent = chosen && fleet.receivers[row] && fleet.senders[column] ? describe(fleet.receivers[row], column) : "";
  }

  function table() {
    const made = make("table"), head = make("tr", undefined, make("thead", undefined, made)), body = make("tbody", undefined, made);
    make("th", "receiver \\ sender", head).scope = "col";
    for (const sender of fleet.senders) make("th", sender, head).scope = "col";
    fleet.receivers.forEach((receiver, row) => {
      const line = make("tr", undefined, body), name = make("th", receiver.host + (receiver.silent ? " (silent)" : ""), line);
      name.scope = "row";
      name.className = receiver.silent ? "silent" : "";
      fleet.senders.forEach((sender, column) => {
        const one = cell(receiver, column), own = sender === receiver.host;
        const box = make("td", own ? "" : one.due ? share(one.lost, one.due) : "–", line);
        box.title = describe(receiver, column);
        box.dataset.level = own ? 0 : level(one.lost, one.due);
        if (own) box.className = "self";
        box.addEventListener("click", () => choose(row, column));
      });
    });
    return made;
  }

  function drawing(place) {
    const rows = fleet.receivers.length, columns = fleet.senders.length;
    const size = Math.max(5, Math.min(20, Math.floor((place.clientWidth - 2) / columns)));
    const named = size >= 11, margin = named ? 110 : 0, ratio = devicePixelRatio || 1;
    const made = make("canvas"), width = margin + columns * size, height = margin + rows * size;
    const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name).trim();
    made.width = width * ratio; made.height = height * ratio;
    made.style.width = `${width}px`; made.style.height = `${height}px`;
    made.tabIndex = 0;
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", `Matrix of ${rows} receivers and ${columns} senders; the arrow keys choose a cell; the worst links are listed below`);
    const pen = made.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = colour("--card");
    pen.fillRect(margin, margin, columns * size, rows * size);
    fleet.receivers.forEach((receiver, row) => {
      if (receiver.silent) {
        pen.fillStyle = colour("--line");
        pen.fillRect(margin, margin + row * size, columns * size, size);
      }
      fleet.senders.forEach((sender, column) => {
        const x = margin + column * size, y = margin + row * size, one = cell(receiver, column);
        if (sender === receiver.host) {
          pen.fillStyle = colour("--line");
          pen.fillRect(x, y, size, size);
        } else if (one.lost) {
          const side = Math.max(1.5, (size - 1) * (0.25 + 0.1875 * (level(one.lost, one.due) - 0)));
          pen.fillStyle = colour("--bad");
          pen.globalAlpha = 0.4 + 0.15 * level(one.lost, one.due);
          pen.fillRect(x + (size - side) / 2, y + (size - side) / 2, side, side);
          pen.globalAlpha = 1;
        }
      });
    });
    if (named) {
      pen.fillStyle = colour("--ink");
      pen.font = `${Math.min(12, size - 1)}px system-ui, sans-serif`;
      pen.textBaseline = "middle";
      pen.textAlign = "right";
      fleet.receivers.forEach((one, row) => pen.fillText(one.host, margin - 4, margin + (row + 0.5) * size, margin - 6));
      pen.textAlign = "left";
      fleet.senders.forEach((sender, column) => {
        pen.save();
        pen.translate(margin + (column + 0.5) * size, margin - 4);
        pen.rotate(-Math.PI / 2);
        pen.fillText(sender, 0, 0, margin - 6);
        pen.restore();
      });
    }
    const at = event => {
      const box = made.getBoundingClientRect();
      const row = Math.floor((event.clientY - box.top - margin) / size), column = Math.floor((event.clientX - box.left - margin) / size);
      if (row >= 0 && row < rows && column >= 0 && column < columns) choose(row, column);
    };
    made.addEventListener("pointermove", at);
    made.addEventListener("pointerdown", at);
    made.addEventListener("keydown", event => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step) return;
      event.preventDefault();
      const [row, column] = chosen || [0, -step[1]];
      choose(Math.max(0, Math.min(rows - 1, row + step[0])), Math.max(0, Math.min(columns - 1, column + step[1])));
    });
    return made;
  }

  function worst() {
    const links = [];
    fleet.receivers.forEach((receiver, row) => {
      if (receiver.counts[1]) fleet.senders.forEach((sender, column) => {
        const one = cell(receiver, column);
        if (one.lost && sender !== receiver.host) links.push([one.lost / one.due, receiver, sender, one]);
      });
    });
    links.sort((a, b) => b[0] - a[0] || b[3].lost - a[3].lost);
    const body = by("worst");
    body.replaceChildren();
    const head = make("tr", undefined, make("thead", undefined, body));
    for (const title of ["receiver", "sender", "lost", "of", "share", "late"]) make("th", title, head).scope = "col";
    const rows = make("tbody", undefined, body);
    for (const [, receiver, sender, one] of links.slice(0, WORST)) {
      const line = make("tr", undefined, rows);
      for (const text of [receiver.host, sender, one.lost, one.due, share(one.lost, one.due), one.late]) make("td", text, line);
    }
    if (!links.length) make("td", "Nothing was lost.", make("tr", undefined, rows)).colSpan = 6;
  }

  function show() {
    const place = by("matrix"), focused = place.contains(document.activeElement), scroll = [place.scrollLeft, place.scrollTop];
    by("own").textContent = fleet.own;
    by("count").textContent = fleet.receivers.length;
    by("minutes").textContent = fleet.minutes;
    by("findings").replaceChildren(...fleet.findings.map(one => make("li", one.text)));
    if (!fleet.findings.length) make("li", "All is well.", by("findings")).className = "well";
    const drawn = Math.max(fleet.receivers.length, fleet.senders.length) > MOST_IN_TABLE ? drawing(place) : table();
    place.replaceChildren(drawn);
    if (focused) drawn.focus();
    [place.scrollLeft, place.scrollTop] = scroll;
    worst();
    if (chosen) choose(...chosen);
  }

  async function ask() {
    try {
      const answer = await fetch("fleet-table.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok) throw new Error(answer.status);
      fleet = await answer.json();
      show();
      by("gone").hidden = true;
    } catch {
      by("gone").hidden = false;
    }
    setTimeout(ask, EVERY);
  }

  dark.addEventListener("change", () => fleet && show());
  addEventListener("resize", () => fleet && show());
  ask();
})();
