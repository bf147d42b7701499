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
      if (other && !isInUse(part)) part.replaceWith(document.adoptNode(other));
    }
    times += 1;
    document.body.dataset.refreshed = String(times);
    return "";
  };

  let paused = false;
  let failed = "";
  const button = document.createElement("button");
  button.className = "live";
  button.type = "button";
  const show = () => {
    button.textContent = paused ? "Paused" : failed || "Live";
    button.setAttribute("aria-pressed", String(!paused));
    button.classList.toggle("failed", Boolean(failed) && !paused);
    button.title = paused ? "Resume live updates" : "Pause live updates";
  };
  button.addEventListener("click", () => {
    paused = !paused;
    show();
  });
  show();
  document.querySelector(".top").append(button);

  const again = () => setTimeout(async () => {
    if (!paused && !document.hidden) {
      failed = await refresh().catch(() => "No response");
      show();
    }
    again();
  }, 1000 * seconds);
  again();
})();
