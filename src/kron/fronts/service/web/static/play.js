// The playground answers while its form is typed into: the page of the typed address replaces the answer.
"use strict";

(() => {
  const form = document.getElementById("typed");
  let latest = 0;
  let timer = 0;
  const show = async () => {
    const typed = [...new FormData(form)].filter(([, value]) => value);
    const address = `${form.getAttribute("action")}?${new URLSearchParams(typed)}`;
    latest += 1;
    const number = latest;
    const response = await fetch(address, { headers: { accept: "text/html" } });
    // An expired session leads to the login page, and from there to what was typed.
    if (response.redirected && number === latest) location.href = address;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("answer");
    // A later answer may have come first.
    if (!fresh || number !== latest) return;
    document.getElementById("answer").replaceWith(document.adoptNode(fresh));
    history.replaceState(null, "", address);
    document.dispatchEvent(new Event("kron-refreshed"));
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => show().catch(() => {}), 250);
  });
})();
