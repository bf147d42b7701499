// Keeps a page fresh: asks for it again every few seconds and puts its live parts in the place of the old ones.
// A part somebody is reading with the keyboard or has marked stays as it is. Without this file pages work the same.
"use strict";

(() => {
  const seconds = Number(document.body.dataset.refresh);
  if (!seconds) return;

  const isInUse = (part) => {
    const selection = document.getSelection();
    const marked = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    return marked || (part !== document.activeElement && part.contains(document.activeElement));
  };

  let times = 0;
  const refresh = async () => {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    // Whoever was signed in may be so no longer, and is sent to where one signs in.
    if (answer.redirected) return "Signed out";
    if (!answer.ok) return "No answer";
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
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
    button.title = paused ? "Keep this page up to date" : "Leave this page as it is";
  };
  button.addEventListener("click", () => {
    paused = !paused;
    show();
  });
  show();
  document.querySelector(".top").append(button);

  const again = () => setTimeout(async () => {
    if (!paused && !document.hidden) {
      failed = await refresh().catch(() => "No answer");
      show();
    }
    again();
  }, 1000 * seconds);
  again();
})();
