// Fetches the page periodically and updates only the text that has changed, so that selection and focus stay. Without
// this script the browser reloads the page.
"use strict";
(() => {
  const EVERY = 3000, PATIENCE = 8000;
  // What changes beside the title and the sections, some of it only with a restart of the daemon.
  const UPDATED = ["header .host", "header dl", "footer"];
  const gone = document.getElementById("gone"), pause = document.getElementById("pause");
  let timer = 0, updated = new Date(), paused = false, asking = false;

  function local(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const when = new Date(time.dateTime), near = Math.abs(Date.now() - when) < 64800000;
      time.title = time.dateTime;
      time.textContent = near ? when.toLocaleTimeString([], { hour12: false }) : when.toLocaleString([], { hour12: false });
    }
    for (const zone of root.querySelectorAll(".zone")) zone.textContent = "local time";
  }

  function put(old, fresh) {
    if (old.nodeName !== fresh.nodeName) return old.replaceWith(document.importNode(fresh, true));
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const before = [...old.childNodes], after = [...fresh.childNodes];
    after.forEach((child, place) => before[place] ? put(before[place], child) : old.append(document.importNode(child, true)));
    before.slice(after.length).forEach(child => child.remove());
  }

  function selected(part) {
    const selection = getSelection();
    return !selection.isCollapsed && selection.rangeCount && selection.getRangeAt(0).intersectsNode(part);
  }

  function show(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html"), main = document.querySelector("main");
    if (!fresh.getElementById("sentence")) throw new Error("not the status page");
    local(fresh);
    document.title = fresh.title;
    for (const part of UPDATED) put(document.querySelector(part), fresh.querySelector(part));
    const parts = [...fresh.querySelectorAll("main > section")], ids = parts.map(part => part.id);
    for (const old of [...main.children]) if (!ids.includes(old.id)) old.remove();
    parts.forEach((part, place) => {
      const old = document.getElementById(part.id);
      if (!old) main.insertBefore(document.importNode(part, true), main.children[place] || null);
      else if (!selected(old)) put(old, part);
    });
  }

  async function ask() {
    clearTimeout(timer);
    if (asking || paused || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch("./", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok) throw new Error(answer.status);
      show(await answer.text());
      updated = new Date();
      gone.hidden = true;
    } catch {
      document.getElementById("gone-since").textContent = updated.toLocaleTimeString([], { hour12: false });
      gone.hidden = false;
    }
    asking = false;
    timer = setTimeout(ask, EVERY);
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", paused);
    ask();
  });
  document.addEventListener("visibilitychange", ask);
  local(document);
  timer = setTimeout(ask, EVERY);
})();
