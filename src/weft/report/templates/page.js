// Values under the pointer. Without this script the page is complete: the same numbers are in its tables.
for (const frame of document.querySelectorAll("[data-readout]")) {
  const held = JSON.parse(frame.dataset.readout);
  const plot = frame.querySelector(".plot");
  const rule = plot.appendChild(document.createElement("div"));
  const tip = plot.appendChild(document.createElement("div"));
  rule.className = "rule";
  tip.className = "tip";
  rule.hidden = tip.hidden = true;
  const show = (event) => {
    const box = plot.getBoundingClientRect();
    const at = (100 * (event.clientX - box.left)) / box.width;
    let near = 0;
    held.x.forEach((x, i) => { if (Math.abs(x - at) < Math.abs(held.x[near] - at)) near = i; });
    tip.textContent = "";
    tip.appendChild(document.createElement("strong")).textContent = held.heads[near];
    for (const [name, tone, texts] of held.rows) {
      if (!texts[near]) continue;
      const row = tip.appendChild(document.createElement("div"));
      row.appendChild(document.createElement("i")).className = "square " + tone;
      row.appendChild(document.createElement("span")).textContent = name;
      row.appendChild(document.createElement("b")).textContent = texts[near];
    }
    rule.style.left = held.x[near] + "%";
    tip.style.left = held.x[near] + "%";
    tip.classList.toggle("left", held.x[near] > 50);
    rule.hidden = tip.hidden = false;
  };
  const hide = () => { rule.hidden = tip.hidden = true; };
  plot.addEventListener("pointermove", show);
  plot.addEventListener("pointerdown", show);
  plot.addEventListener("pointerleave", hide);
}
