// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// What a page looks like, for look.go.
(async () => {
  await new Promise(done => setTimeout(done, 500));
  const parse = color => (color.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = e => {
    for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0.5) return c; }
    return [255, 255, 255];
  };
  const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  // How many of the pixels of a chart are of a color, which its grid, its words and its ground are not.
  const inked = chart => {
    const canvas = chart.querySelector("canvas");
    if (!canvas || !canvas.width) return 0;
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let n = 0;
    for (let i = 0; i < data.length; i += 4) {
      const [r, g, b, a] = data.slice(i, i + 4);
      if (a > 60 && Math.max(r, g, b) - Math.min(r, g, b) > 40) n++;
    }
    return n;
  };
  const width = innerWidth, wide = [];
  for (const e of document.querySelectorAll("body *")) {
    const box = e.getBoundingClientRect();
    if (box.right > width + 1 && !e.closest(".scroll")) wide.push(e.tagName + "." + e.className);
  }
  const faint = [];
  for (const e of document.querySelectorAll("h1, h2, p, td, th, li, code, small, .band span, .u-legend *, .verdict")) {
    if (!e.textContent.trim() || e.children.length && !e.matches(".verdict")) continue;
    const c = contrast(parse(getComputedStyle(e).color), ground(e));
    if (c < 4) faint.push(`${e.tagName} "${e.textContent.trim().slice(0, 30)}" has a contrast of ${c.toFixed(1)}`);
  }
  return {
    Width: width, Wanted: document.documentElement.scrollWidth, Wide: wide.slice(0, 5),
    Charts: [...document.querySelectorAll(".chart")].map(c => ({ ID: c.id, Inked: inked(c), Text: c.textContent.trim() })),
    Bands: document.querySelectorAll(".band span").length, Faint: [...new Set(faint)].slice(0, 5),
    Dark: luminance(ground(document.body)) < 0.2,
    Requested: performance.getEntriesByType("resource").map(r => r.name),
  };
})()
