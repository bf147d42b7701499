// Keyboard shortcuts, the switch of the zone in which times are shown, buttons that copy, and forms that outlive a
// session. Pages work without it.
"use strict";

(() => {
  // --- zones: as the server wrote them (each schedule's zone), in UTC, or in the viewer's zone --------------
  const ZONES = [["schedule", "Schedule's zone"], ["utc", "UTC"], ["viewer", "Your zone"]];
  const remembered = () => {
    try { return localStorage.getItem("kron-zone") || "schedule"; } catch { return "schedule"; }
  };
  let zone = remembered();
  const SHORT = {
    weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hour12: false, timeZoneName: "short",
  };
  // As on the server, a time of another year has its year.
  const ofThisYear = new Intl.DateTimeFormat("en-GB", SHORT);
  const ofAnyYear = new Intl.DateTimeFormat("en-GB", { ...SHORT, year: "numeric" });
  const format = (at) => (at.getFullYear() === new Date().getFullYear() ? ofThisYear : ofAnyYear).format(at);
  const write = (root) => {
    for (const time of root.querySelectorAll("time[title]")) {
      time.dataset.written ??= time.textContent;
      const at = new Date(time.dateTime);
      const shown = { schedule: time.dataset.written, utc: time.title, viewer: isNaN(at) ? time.title : format(at) };
      time.textContent = shown[zone];
    }
    for (const time of root.querySelectorAll("time[data-clock]")) {
      time.dataset.written ??= time.textContent;
      time.textContent = zone === "viewer" ? ofDay.format(new Date(time.dateTime)) : time.dataset.written;
    }
    writeAxis(root);
  };
  const ofDay = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false, timeZoneName: "short" });
  // The labels of a time axis: hours keep their form, days get one that has the hour.
  const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hour12: false });
  const dated = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hour12: false });
  const writeAxis = (root) => {
    for (const label of root.querySelectorAll("text[data-at]")) {
      label.dataset.written ??= label.textContent;
      const at = new Date(label.dataset.at);
      const own = /^\d\d:\d\d$/.test(label.dataset.written) ? clock : dated;
      label.textContent = zone === "viewer" ? own.format(at) : label.dataset.written;
    }
    for (const note of root.querySelectorAll("[data-axis]")) note.textContent = `Times of the axis in ${zone === "viewer" ? "your zone" : "UTC"}`;
  };
  const select = document.createElement("select");
  select.className = "zone";
  select.setAttribute("aria-label", "Zone of times");
  for (const [value, word] of ZONES) select.add(new Option(word, value, false, value === zone));
  select.addEventListener("change", () => {
    zone = select.value;
    try { localStorage.setItem("kron-zone", zone); } catch { /* private mode: for this page only */ }
    write(document);
  });
  document.querySelector(".top")?.append(select);
  // On a phone the pages stand in a row that scrolls.
  document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  write(document);
  document.addEventListener("kron-refreshed", () => write(document));

  // --- a button beside each text that is meant to be copied ---------------------------------------------------
  const offerCopies = () => {
    for (const text of document.querySelectorAll("pre[data-copy]")) {
      if (text.previousElementSibling?.className === "copy") continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        // Without a secure connection a page may not write to the clipboard: the text is selected instead.
        try {
          await navigator.clipboard.writeText(text.textContent);
          button.textContent = "Copied";
        } catch {
          getSelection().selectAllChildren(text);
          button.textContent = "Selected";
        }
      });
      text.before(button);
    }
  };
  offerCopies();
  document.addEventListener("kron-refreshed", offerCopies);

  // --- forms: one that is sent after the session has ended would lose what is typed in it --------------------------
  // A page that every caller may read, and that costs nothing.
  const READABLE = "/ui/playground";
  const sayEnded = (form) => {
    if (form.previousElementSibling?.classList.contains("ended")) return;
    const note = document.createElement("p");
    note.className = "problem ended";
    note.setAttribute("role", "alert");
    const link = document.createElement("a");
    link.href = "/login";
    link.target = "_blank";
    link.textContent = "Sign in in another tab";
    note.append("You are signed out, and nothing was sent. ", link, ", then send this form again.");
    form.before(note);
  };
  const hasEnded = async () => {
    try { return (await fetch(READABLE, { method: "HEAD", redirect: "manual", headers: { accept: "text/html" } })).type === "opaqueredirect"; } catch { return false; }
  };
  const asked = new WeakSet();
  document.addEventListener("submit", async (event) => {
    const { target: form, submitter } = event;
    if (form.method !== "post" || !form.closest("main") || location.pathname === "/login") return;
    // The second time it is sent by the line below.
    if (asked.delete(form)) return;
    event.preventDefault();
    if (await hasEnded()) { sayEnded(form); return; }
    asked.add(form);
    form.requestSubmit(submitter);
  });

  // --- keys --------------------------------------------------------------------------------------------------
  const ALL_PLACES = { n: ["/ui/now", "Now"], s: ["/", "Schedules"], r: ["/ui/runs", "Runs"], d: ["/ui/dags", "DAGs"], a: ["/ui/audit", "Audit"], f: ["/ui/fleet", "Fleet"], p: ["/ui/playground", "Playground"], w: ["/ui/workers", "Workers"] };
  // Only pages that the caller may open: those that the top of this page links to.
  const isOffered = ([, [path]]) => document.querySelector(`.top nav a[href="${path}"]`);
  const PLACES = Object.fromEntries(Object.entries(ALL_PLACES).filter(isOffered));
  const HELP = [
    ["/", "Search schedules"],
    ["j, k", "Next, previous row"],
    ["Enter", "Open the row"],
    ...Object.entries(PLACES).map(([key, [, word]]) => [`g ${key}`, word]),
    ["?", "This help"],
  ];
  const help = document.createElement("dialog");
  help.className = "help";
  const title = document.createElement("h2");
  title.textContent = "Keyboard";
  const list = document.createElement("dl");
  for (const [keys, word] of HELP) {
    const term = document.createElement("dt");
    term.textContent = keys;
    const meaning = document.createElement("dd");
    meaning.textContent = word;
    list.append(term, meaning);
  }
  const close = document.createElement("button");
  close.textContent = "Close";
  close.addEventListener("click", () => help.close());
  help.append(title, list, close);
  document.body.append(help);

  const ROWS = "main .list tbody :is(th, td):first-child a, main .lane a.name, main .problems a.name";
  const move = (step) => {
    const rows = [...document.querySelectorAll(ROWS)];
    if (!rows.length) return;
    const at = rows.indexOf(document.activeElement);
    const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1);
    rows[next].focus();
  };
  const search = () => {
    const field = document.querySelector('[data-key="/"]');
    if (field) field.select();
    else location.href = "/#search";
  };
  if (location.hash === "#search") search();

  let isGoing = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    if (isGoing) {
      isGoing = false;
      const place = PLACES[event.key];
      if (place) { event.preventDefault(); location.href = place[0]; }
      return;
    }
    const does = { "/": search, "?": () => help.showModal(), j: () => move(1), k: () => move(-1), g: () => { isGoing = true; } }[event.key];
    if (does && !help.open) { event.preventDefault(); does(); }
  });
})();
