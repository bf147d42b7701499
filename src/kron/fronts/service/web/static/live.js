// Refreshes a page: when the service says that something has changed, or every few seconds where it cannot, it
// fetches the page again and replaces its live parts.
// A part with the keyboard focus or a selection is kept, but for an output, which grows. Without this script pages work, but do not refresh.
"use strict";

(() => {
  // How often a page is fetched without a stream of events, in seconds; with one, times like "5 s ago" are
  // renewed at least this often.
  const seconds = Number(document.body.dataset.refresh);
  const IDLE_S = 20;
  // When a stream that was refused is tried again, in milliseconds.
  const AGAIN_MS = 60000;
  if (!seconds) return;

  const isInUse = (part) => {
    const selection = document.getSelection();
    const selected = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    return selected || (part !== document.activeElement && part.contains(document.activeElement));
  };

  // Elements of a part by name; of those with one name the first, the second and so on.
  const named = (part, selector, nameOf) => {
    const seen = new Map();
    return [...part.querySelectorAll(selector)].map((each) => {
      const name = nameOf(each);
      const times = (seen.get(name) ?? 0) + 1;
      seen.set(name, times);
      return [`${name} ${times}`, each];
    });
  };
  const summaryOf = (details) => details?.querySelector("summary")?.textContent ?? "";
  // Details are known by their summary and the time of their row: others may come before them.
  const detailsOf = (part) => named(part, "details", (each) => `${each.closest("tr, li")?.querySelector("time")?.dateTime ?? ""} ${summaryOf(each)}`);
  const keepOpen = (part, other) => {
    const opened = new Map(detailsOf(part).map(([key, details]) => [key, details.open]));
    for (const [key, details] of detailsOf(other)) details.open = opened.get(key) ?? details.open;
  };
  // What scrolls by itself stays where the viewer has left it. The output of a running process stays at its end,
  // unless the viewer has scrolled up.
  const scrolledOf = (part) => named(part, "pre, .sideways, .graph, .scroll", (each) => `${each.className} ${each.getAttribute("aria-label") ?? summaryOf(each.closest("details"))}`);
  const isAtEnd = (each) => each.matches(".output") && each.scrollTop + each.clientHeight >= each.scrollHeight - 8;
  const placeOf = (each) => ({ left: each.scrollLeft, top: isAtEnd(each) ? Infinity : each.scrollTop });
  const AT_END = { left: 0, top: Infinity };
  const putAt = (each, { left, top }) => {
    each.scrollLeft = left;
    each.scrollTop = top === Infinity ? each.scrollHeight : top;
  };
  const placesOf = (part) => new Map(scrolledOf(part).map(([key, each]) => [key, placeOf(each)]));
  const putBack = (part, places) => {
    for (const [key, each] of scrolledOf(part)) {
      const place = places.get(key) ?? (part.dataset.tail === "yes" && each.matches(".output") ? AT_END : null);
      if (place) putAt(each, place);
    }
  };
  // What is typed or chosen and not sent yet stays: on a phone a field loses the focus with its keyboard.
  const fieldsOf = (part) => named(part, "input:not([type=hidden]), select, textarea", (each) => each.name);
  const isChanged = (each) => (each.options ? [...each.options].some((one) => one.selected !== one.defaultSelected) : each.value !== each.defaultValue);
  const keepTyped = (part, other) => {
    const typed = new Map(fieldsOf(part).filter(([, each]) => isChanged(each)).map(([key, each]) => [key, each.value]));
    for (const [key, each] of fieldsOf(other)) if (typed.has(key)) each.value = typed.get(key);
  };
  // An output with the keyboard focus, which scrolls it, grows in its place.
  const growOutput = (part, other) => {
    const old = document.activeElement, fresh = other.querySelector("pre.output");
    if (!fresh || !old.matches("pre.output") || !document.getSelection().isCollapsed) return;
    const place = placeOf(old);
    old.replaceChildren(...document.adoptNode(fresh).childNodes);
    putAt(old, place);
    part.dataset.tail = other.dataset.tail;
  };
  const isTailing = () => Boolean(document.querySelector('[data-tail="yes"]'));
  for (const tail of document.querySelectorAll('[data-tail="yes"] pre.output')) tail.scrollTop = tail.scrollHeight;

  let times = 0;
  const refresh = async () => {
    const response = await fetch(location.href, { headers: { accept: "text/html" } });
    // An expired session is redirected to the login page.
    if (response.redirected) return "Signed out";
    if (!response.ok) return "No response";
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (!other) continue;
      if (isInUse(part)) {
        growOutput(part, other);
        continue;
      }
      const places = placesOf(part);
      keepOpen(part, other);
      keepTyped(part, other);
      part.replaceWith(document.adoptNode(other));
      putBack(other, places);
    }
    document.dispatchEvent(new Event("kron-refreshed"));
    times += 1;
    document.body.dataset.refreshed = String(times);
    return "";
  };

  // --- the stream of events: closed while the page is hidden, as browsers allow few connections -------------
  let stream = null;
  let isStreaming = false;
  let isStale = false;
  let refusedAt = -AGAIN_MS;
  const hasEnded = () => { stream?.close(); stream = null; isStreaming = false; };
  const listen = () => {
    if (stream || performance.now() - refusedAt < AGAIN_MS) return;
    stream = new EventSource("/ui/live");
    stream.addEventListener("changed", () => { isStale = true; isStreaming = true; });
    stream.addEventListener("error", () => {
      isStreaming = false;
      // The browser connects again by itself, unless it was refused.
      if (stream && stream.readyState === EventSource.CLOSED) { refusedAt = performance.now(); hasEnded(); }
    });
  };

  let isOff = false;
  let failed = "";
  const button = document.createElement("button");
  button.className = "live";
  button.type = "button";
  const show = () => {
    // Not "Paused": that is a state of schedules.
    button.textContent = isOff ? "Live off" : failed || "Live";
    button.setAttribute("aria-pressed", String(!isOff));
    button.classList.toggle("failed", Boolean(failed) && !isOff);
    button.title = isOff ? "Turn live updates of this page on" : "Turn live updates of this page off";
  };
  button.addEventListener("click", () => {
    isOff = !isOff;
    if (isOff) hasEnded();
    show();
  });
  show();
  document.querySelector(".top").append(button);
  document.addEventListener("visibilitychange", () => { if (document.hidden) hasEnded(); });

  let sinceS = 0;
  const again = () => setTimeout(async () => {
    sinceS += 1;
    if (!isOff && !document.hidden) {
      listen();
      if (isStale || isTailing() || sinceS >= (isStreaming ? IDLE_S : seconds)) {
        isStale = false;
        sinceS = 0;
        failed = await refresh().catch(() => "No response");
        document.body.dataset.live = isStreaming ? "stream" : "poll";
        show();
      }
    }
    again();
  }, 1000);
  again();
})();
