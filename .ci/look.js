// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Looks at a page of pleg-bench, and returns what is wrong with it. The script pages evaluates it in a
// frame of the wanted width; want has the charts and the bands (the states of a stream) to be drawn,
// and the theme.
(async (want) => {
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
  const wrong = [], width = innerWidth, wide = [];
  const fail = (bad, what) => { if (bad) wrong.push(`${width} px: ${what}`); };
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
  const wanted = document.documentElement.scrollWidth;
  fail(width !== want.width || wanted > width, `the page is ${wanted} pixels wide in a window of ${want.width}; too wide: ${wide.slice(0, 5)}`);
  fail((luminance(ground(document.body)) < 0.2) !== want.dark, `the ground of the ${want.dark ? "dark" : "light"} theme`);
  let drawn = 0;
  for (const chart of document.querySelectorAll(".chart")) {
    const colored = inked(chart);
    if (colored >= 50) drawn++; // a short line has so many
    else fail(chart.textContent.trim() !== "nothing was measured", `the chart ${chart.id} is not drawn: ${colored} of its pixels have a color`);
  }
  fail(drawn < want.charts, `${drawn} charts are drawn, want ${want.charts}`);
  const bands = document.querySelectorAll(".band span").length;
  fail(want.bands !== bands > 0, `${bands} spans of states are shown`);
  for (const text of new Set(faint)) fail(true, `hard to read: ${text}`);
  for (const r of performance.getEntriesByType("resource")) fail(true, `asks for ${r.name}`);
  return wrong;
})
