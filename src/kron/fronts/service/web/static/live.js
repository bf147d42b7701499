// Refreshes a page: fetches it again every few seconds and replaces its live parts.
// A part with the keyboard focus or a selection is kept. Without this script pages work, but do not refresh.
"use strict";

(() => {
  const seconds = Number(document.body.dataset.refresh);
  if (!seconds) return;

  const isInUse = (part) => {
    const selection = document.getSelection();
    const selected = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    return selected || (part !== document.activeElement && part.contains(document.activeElement));
  };

  let times = 0;
  const refresh = async () => {
    const response = await fetch(location.href, { headers: { accept: "text/html" } });
    // An expired session is redirected to the login page.
    if (response.redirected) return "Signed out";
    if (!response.ok) return "No response";
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (!other || isInUse(part)) continue;
      const opened = [...part.querySelectorAll("details")].map((details) => details.open);
      [...other.querySelectorAll("details")].forEach((details, index) => { details.open = Boolean(opened[index]); });
      part.replaceWith(document.adoptNode(other));
    }
    document.dispatchEvent(new Event("kron-refreshed"));
    times += 1;
    document.body.dataset.refreshed = String(times);
    return "";
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
    show();
  });
  show();
  document.querySelector(".top").append(button);

  const again = () => setTimeout(async () => {
    if (!isOff && !document.hidden) {
      failed = await refresh().catch(() => "No response");
      show();
    }
    again();
  }, 1000 * seconds);
  again();
})();
