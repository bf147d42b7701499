// Returns the faults of a page: the rules of accessibility that a script can check.
(() => {
  const faults = [];
  const isSeen = (each) => each.getClientRects().length && getComputedStyle(each).visibility !== "hidden";
  const all = (selector) => [...document.querySelectorAll(selector)];
  const say = (rule, each) => faults.push(`${rule}: ${each ? each.outerHTML.slice(0, 160) : ""}`);
  if (!document.documentElement.lang) say("no language");
  if (!document.title.trim()) say("no title");
  for (const selector of ["main", "header"]) if (all(selector).length !== 1) say(`not one ${selector}`);
  if (all("h1").length !== 1) say(`${all("h1").length} headings of the first level`);
  let level = 0;
  for (const heading of all("h1, h2, h3, h4").filter(isSeen)) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) say("a skipped level of headings", heading);
    level = next;
  }
  const ids = all("[id]").map((each) => each.id);
  for (const id of ids.filter((each, place) => ids.indexOf(each) !== place)) say(`the id ${id} twice`);
  const named = (each) => (each.getAttribute("aria-label") || each.textContent || each.title || "").trim();
  for (const each of all("a[href], button, summary")) if (!named(each)) say("no name", each);
  for (const each of all("input:not([type=hidden]), select, textarea"))
    if (!each.labels?.length && !each.getAttribute("aria-label")) say("no label", each);
  for (const each of all("img")) if (!each.hasAttribute("alt")) say("no text of a picture", each);
  for (const each of all("svg").filter((picture) => !picture.closest('[aria-hidden="true"]')))
    if (!each.parentElement.closest("svg") && !each.getAttribute("aria-label") && isSeen(each)) say("no text of a picture", each);
  for (const each of all("[aria-labelledby], [aria-describedby]"))
    for (const id of (each.getAttribute("aria-labelledby") || each.getAttribute("aria-describedby")).split(" "))
      if (!document.getElementById(id)) say(`no element ${id}`, each);
  for (const each of all("table")) if (!each.querySelector("th")) say("a table without headings", each);
  for (const list of all("ul, ol")) for (const item of list.children) if (item.tagName !== "LI") say("no item of a list", item);
  const partsOf = (colour) => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const groundOf = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const ground = partsOf(getComputedStyle(at).backgroundColor);
      if (ground[3] === 255) return ground;
    }
    return [255, 255, 255, 255];
  };
  const light = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((part) => { const c = part / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const seen = new Set();
  for (const each of all("main *, header *").filter(isSeen)) {
    if (each.closest("svg") || ![...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    if (each.closest(".hidden, .skip-link")) continue;
    const style = getComputedStyle(each);
    const pair = [light(partsOf(style.color)), light(groundOf(each))].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    const key = `${style.color} ${each.className}`;
    if (contrast < (isLarge ? 3 : 4.5) && !seen.has(key)) { seen.add(key); say(`contrast ${contrast.toFixed(2)}`, each); }
  }
  if (document.documentElement.scrollWidth > innerWidth) say(`wider than the window: ${document.documentElement.scrollWidth}`);
  return faults;
})()
